// The command uses the client that oapi-codegen generates, at the URL of its argument.
package main

import (
	"context"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	"walk/oapi-codegen/api"
)

func must[T any](v T, err error) T {
	if err != nil {
		log.Fatal(err)
	}
	return v
}

func check(ok bool, what string, got any) {
	if !ok {
		log.Fatalf("%s: %+v", what, got)
	}
}

var ctx = context.Background()

// register returns the client of a new account.
func register(url, name string) *api.ClientWithResponses {
	in := api.Registration{Username: name, Email: name + "@likewise.example", Password: "a walk of clients"}
	r := must(must(api.NewClientWithResponses(url)).RegisterWithResponse(ctx, nil, in))
	check(r.JSON201 != nil, "register", string(r.Body))
	bearer := func(_ context.Context, req *http.Request) error {
		req.Header.Set("Authorization", "Bearer "+r.JSON201.Token)
		return nil
	}
	return must(api.NewClientWithResponses(url, api.WithRequestEditorFn(bearer)))
}

func main() {
	url, run := os.Args[1], strconv.FormatInt(time.Now().UnixNano(), 36)
	ada, bob := register(url, "ada-"+run), register(url, "bob-"+run)

	key := "post-" + run
	post := must(ada.CreatePostWithResponse(ctx, &api.CreatePostParams{IdempotencyKey: &key},
		api.PostInput{Title: "A walk", Content: "The word is " + run + "."}))
	check(post.JSON201 != nil, "post", string(post.Body))
	id := post.JSON201.Id
	comment := must(bob.CreateCommentWithResponse(ctx, id, nil, api.CommentInput{Content: "Hello."}))
	check(comment.JSON201 != nil && comment.JSON201.ParentId == nil, "comment", string(comment.Body))
	like := must(bob.LikePostWithResponse(ctx, id))
	check(like.JSON200 != nil && like.JSON200.Liked && like.JSON200.LikesCount == 1, "like", string(like.Body))

	limit, newest := 1, api.ListPostsParamsSortNew
	list := must(bob.ListPostsWithResponse(ctx, &api.ListPostsParams{Sort: &newest, Limit: &limit}))
	check(list.JSON200 != nil && len(list.JSON200.Items) == 1, "list", string(list.Body))
	summary := list.JSON200.Items[0]
	check(summary.Id == id && summary.Liked && summary.CreatedAt.After(time.Now().Add(-time.Hour)), "summary", summary)
	found := must(bob.ListPostsWithResponse(ctx, &api.ListPostsParams{Q: &run}))
	check(found.JSON200 != nil && len(found.JSON200.Items) == 1 && found.JSON200.NextCursor == nil, "search",
		string(found.Body))

	report := must(bob.ReportContentWithResponse(ctx, nil,
		api.ReportInput{TargetType: api.ReportInputTargetTypePost, TargetId: id, Reason: api.ReportReasonSpam}))
	check(report.JSON201 != nil && report.JSON201.Outcome == nil, "report", string(report.Body))
	drop := must(ada.CreateDropWithResponse(ctx, id, nil, api.DropInput{Title: "A ticket", Stock: 1}))
	check(drop.JSON201 != nil && drop.JSON201.EndsAt == nil, "drop", string(drop.Body))
	claim := must(bob.CreateClaimWithResponse(ctx, drop.JSON201.Id))
	check(claim.JSON201 != nil && claim.JSON201.DropId == drop.JSON201.Id, "claim", string(claim.Body))
	soldOut := must(ada.CreateClaimWithResponse(ctx, drop.JSON201.Id))
	check(soldOut.ApplicationproblemJSON409 != nil && soldOut.ApplicationproblemJSON409.Code == api.ProblemCodeSoldOut,
		"sold out", string(soldOut.Body))

	refused := must(ada.CreatePostWithResponse(ctx, nil, api.PostInput{Content: "C"}))
	check(refused.ApplicationproblemJSON422 != nil, "error", string(refused.Body))
	fields := *refused.ApplicationproblemJSON422.Errors
	check(fields[0].Field == "title" && fields[0].Code == api.FieldErrorCodeRequired, "error", fields)
	version := `"v0"`
	title := "A longer walk"
	edited := must(ada.EditPostWithResponse(ctx, id, &api.EditPostParams{IfMatch: &version}, api.PostEdit{Title: &title}))
	check(edited.JSON200 != nil && edited.JSON200.Version == 1, "edit", string(edited.Body))
}
