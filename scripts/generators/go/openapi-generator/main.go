// The command uses the client that openapi-generator generates for Go, at the URL of its argument.
package main

import (
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"strconv"
	"time"

	likewise "walk/openapi-generator/api"
)

// must returns the data of a call.
func must[T any](v T, _ *http.Response, err error) T {
	if refusal, ok := errors.AsType[*likewise.GenericOpenAPIError](err); ok {
		log.Fatalf("%v: %s", err, refusal.Body())
	}
	if err != nil {
		log.Fatal(err)
	}
	return v
}

// problem returns the problem of a call.
func problem[T any](_ T, _ *http.Response, err error) likewise.Problem {
	refusal, ok := errors.AsType[*likewise.GenericOpenAPIError](err)
	if !ok {
		log.Fatalf("it was not refused: %v", err)
	}
	return refusal.Model().(likewise.Problem)
}

func check(ok bool, what string, got any) {
	if !ok {
		log.Fatalf("%s: %+v", what, got)
	}
}

func main() {
	url, run := os.Args[1], strconv.FormatInt(time.Now().UnixNano(), 36)
	config := likewise.NewConfiguration()
	config.Servers = likewise.ServerConfigurations{{URL: url}}
	api := likewise.NewAPIClient(config)
	register := func(name string) context.Context {
		session := must(api.AccountsAPI.Register(context.Background()).Registration(
			*likewise.NewRegistration(name, name+"@likewise.example", "a walk of clients")).Execute())
		return context.WithValue(context.Background(), likewise.ContextAccessToken, session.Token)
	}
	ada, bob := register("ada-"+run), register("bob-"+run)

	post := must(api.PostsAPI.CreatePost(ada).IdempotencyKey("post-" + run).
		PostInput(*likewise.NewPostInput("A walk", "The word is "+run+".")).Execute())
	comment := must(api.CommentsAPI.CreateComment(bob, post.Id).
		CommentInput(*likewise.NewCommentInput("Hello.")).Execute())
	check(comment.PostId == post.Id && comment.ParentId.Get() == nil, "comment", comment)
	like := must(api.LikesAPI.LikePost(bob, post.Id).Execute())
	check(like.Liked && like.LikesCount == 1, "like", like)

	list := must(api.PostsAPI.ListPosts(bob).Sort("new").Limit(1).Execute())
	check(len(list.Items) == 1, "list", list)
	summary := list.Items[0]
	check(summary.Id == post.Id && summary.Liked && summary.CreatedAt.After(time.Now().Add(-time.Hour)), "summary", summary)
	found := must(api.PostsAPI.ListPosts(bob).Q(run).Execute())
	check(len(found.Items) == 1 && found.NextCursor.Get() == nil, "search", found)

	report := must(api.ReportsAPI.ReportContent(bob).ReportInput(
		*likewise.NewReportInput("post", post.Id, likewise.REPORTREASON_SPAM)).Execute())
	check(report.Outcome.Get() == nil, "report", report)
	drop := must(api.DropsAPI.CreateDrop(ada, post.Id).DropInput(*likewise.NewDropInput("A ticket", 1)).Execute())
	claim := must(api.ClaimsAPI.CreateClaim(bob, drop.Id).Execute())
	check(claim.DropId == drop.Id, "claim", claim)
	soldOut := problem(api.ClaimsAPI.CreateClaim(ada, drop.Id).Execute())
	check(soldOut.Code == "sold_out", "sold out", soldOut)

	refused := problem(api.PostsAPI.CreatePost(ada).PostInput(*likewise.NewPostInput("", "C")).Execute())
	check(refused.Errors[0].Field == "title" && refused.Errors[0].Code == "required", "error", refused)
	edit := likewise.NewPostEdit()
	edit.SetTitle("A longer walk")
	edited := must(api.PostsAPI.EditPost(ada, post.Id).IfMatch(`"v0"`).PostEdit(*edit).Execute())
	check(edited.Version == 1, "edit", edited)
}
