"""Uses the client that openapi-generator generates for Python, at the URL of its argument."""

import importlib
import json
import pkgutil
import sys
import time
import uuid

import likewise

for module in pkgutil.walk_packages(likewise.__path__, "likewise."):
    importlib.import_module(module.name)

url, run = sys.argv[1], f"{time.time_ns():x}"


def client(token=None):
    return likewise.ApiClient(likewise.Configuration(host=url, access_token=token))


def account(name):
    body = likewise.Registration(username=name, email=f"{name}@likewise.example", password="a walk of clients")
    return client(likewise.AccountsApi(client()).register(body).token)


def problem(call, *args, **named):
    try:
        call(*args, **named)
    except likewise.ApiException as refusal:
        return likewise.Problem.from_dict(json.loads(refusal.body))
    raise AssertionError("it was not refused")


ada, bob = account(f"ada-{run}"), account(f"bob-{run}")
post = likewise.PostsApi(ada).create_post(
    likewise.PostInput(title="A walk", content=f"The word is {run}."), idempotency_key=str(uuid.uuid4())
)
comment = likewise.CommentsApi(bob).create_comment(post.id, likewise.CommentInput(content="Hello."))
assert comment.post_id == post.id and comment.parent_id is None, comment
like = likewise.LikesApi(bob).like_post(post.id)
assert like.liked and like.likes_count == 1, like

page = likewise.PostsApi(bob).list_posts(sort="new", limit=1)
item = page.items[0]
assert isinstance(item, likewise.PostSummary) and item.id == post.id and item.liked, page
assert item.created_at.tzinfo, page
found = likewise.PostsApi(bob).list_posts(q=run)
assert [item.id for item in found.items] == [post.id] and found.next_cursor is None, found

report = likewise.ReportsApi(bob).report_content(
    likewise.ReportInput(target_type="post", target_id=post.id, reason=likewise.ReportReason.SPAM)
)
assert report.status == "open" and report.outcome is None, report
drop = likewise.DropsApi(ada).create_drop(post.id, likewise.DropInput(title="A ticket", stock=1))
claim = likewise.ClaimsApi(bob).create_claim(drop.id)
assert claim.drop_id == drop.id, claim
sold_out = problem(likewise.ClaimsApi(ada).create_claim, drop.id)
assert sold_out.code == "sold_out", sold_out

taken = likewise.Registration(username=f"ada-{run}", email=f"eve-{run}@likewise.example", password="a walk of clients")
refused = problem(likewise.AccountsApi(client()).register, taken)
assert (refused.errors[0].var_field, refused.errors[0].code) == ("username", "taken"), refused
edited = likewise.PostsApi(ada).edit_post(post.id, likewise.PostEdit(title="A longer walk"), if_match='"v0"')
assert edited.version == 1, edited
