"""Uses the client that openapi-python-client generates, at the URL of its argument."""

import importlib
import pkgutil
import sys
import time
import uuid

import likewise_client
from likewise_client import AuthenticatedClient, Client
from likewise_client import models as m
from likewise_client.api.accounts import register
from likewise_client.api.claims import create_claim
from likewise_client.api.comments import create_comment
from likewise_client.api.drops import create_drop
from likewise_client.api.likes import like_post
from likewise_client.api.posts import create_post, edit_post, list_posts
from likewise_client.api.reports import report_content

for module in pkgutil.walk_packages(likewise_client.__path__, "likewise_client."):
    importlib.import_module(module.name)

url, run = sys.argv[1], f"{time.time_ns():x}"


def account(name):
    body = m.Registration(username=name, email=f"{name}@likewise.example", password="a walk of clients")
    session = register.sync(client=Client(url), body=body)
    return AuthenticatedClient(url, token=session.token)


ada, bob = account(f"ada-{run}"), account(f"bob-{run}")
post = create_post.sync(
    client=ada, body=m.PostInput(title="A walk", content=f"The word is {run}."), idempotency_key=str(uuid.uuid4())
)
comment = create_comment.sync(post.id, client=bob, body=m.CommentInput(content="Hello."))
assert comment.post_id == post.id and comment.parent_id is None, comment
like = like_post.sync(post.id, client=bob)
assert like.liked and like.likes_count == 1, like

page = list_posts.sync(client=bob, sort=m.ListPostsSort.NEW, limit=1)
assert [item.id for item in page.items] == [post.id] and page.items[0].liked, page
assert isinstance(page.items[0], m.PostSummary) and page.items[0].created_at.tzinfo, page
found = list_posts.sync(client=bob, q=run)
assert [item.id for item in found.items] == [post.id] and found.next_cursor is None, found

report = report_content.sync(
    client=bob,
    body=m.ReportInput(target_type=m.ReportInputTargetType.POST, target_id=post.id, reason=m.ReportReason.SPAM),
)
assert report.status == "open" and report.outcome is None, report
drop = create_drop.sync(post.id, client=ada, body=m.DropInput(title="A ticket", stock=1))
claim = create_claim.sync(drop.id, client=bob)
assert claim.drop_id == drop.id, claim
sold_out = create_claim.sync(drop.id, client=ada)
assert isinstance(sold_out, m.Problem) and sold_out.code == m.ProblemCode.SOLD_OUT, sold_out

refused = create_post.sync(client=ada, body=m.PostInput(title="", content="C"))
assert isinstance(refused, m.Problem), refused
assert (refused.errors[0].field, refused.errors[0].code) == ("title", m.FieldErrorCode.REQUIRED), refused
edited = edit_post.sync(post.id, client=ada, body=m.PostEdit(title="A longer walk"), if_match='"v0"')
assert edited.version == 1, edited
