package db_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"likewise/internal/testkit"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/content"
	"likewise/models/db"
	"likewise/models/likes"
	"likewise/models/moderation"
	"likewise/models/people"
	"likewise/models/privacy"
	"likewise/models/reader"
)

// TestModeration_queuesUnderAFlood lets 32 writers comment on, reply below, like and edit one post, while a moderator
// pins, locks, deletes and restores it, and decides a report.
func TestModeration_queuesUnderAFlood(t *testing.T) {
	store, retried := openCounted(t)
	ctx := context.Background()
	ada, mod := newUser(t, store, "ada"), newUser(t, store, "mod")
	require.NoError(t, accounts.New(store).SetRole(ctx, mod.ID, models.RoleModerator))
	const writers = 32
	users := make([]models.Author, writers)
	for i := range users {
		users[i] = newUser(t, store, fmt.Sprintf("user%d", i))
	}
	post, err := content.New(store).CreatePost(
		ctx,
		ada,
		models.PostText{Title: "A post", Content: "with text", Tags: models.Tags{"go", "sql"}},
	)
	require.NoError(t, err)
	target := models.Target{Kind: models.KindPost, ID: post.ID}
	var mu sync.Mutex
	comments := []*models.Comment{newComment(t, store, ada, post, nil), newComment(t, store, ada, post, nil)}
	item := func(random *rand.Rand) *models.Comment {
		mu.Lock()
		defer mu.Unlock()
		return comments[max(0, len(comments)-1-random.IntN(8))]
	}
	var seqs [writers]int64
	allowed := []models.Code{models.CodeNotFound, models.CodeLocked, models.CodePrecondition}
	f := startFlood(t, writers, allowed, func(random *rand.Rand, w int) error {
		user := users[w]
		comment := func(parent *int64) error {
			c, err := content.New(store).CreateComment(
				ctx,
				user,
				post.ID,
				parent,
				models.CommentText{Content: "C", Mentions: []string{"mod"}},
			)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			comments = append(comments, c)
			return nil
		}
		switch w % 8 {
		case 0:
			return comment(nil)
		case 1, 2:
			c := item(random)
			if c.Depth == models.MaxDepth {
				return comment(nil)
			}
			return comment(&c.ID)
		case 3:
			_, err := likes.New(store).SetLike(ctx, target, user.ID, random.IntN(2) == 0)
			return err
		case 4:
			_, err := likes.New(store).SetLike(
				ctx,
				models.Target{Kind: models.KindComment, ID: item(random).ID},
				user.ID,
				random.IntN(2) == 0,
			)
			return err
		case 5: // a like writer's batch
			shard := w / 8 * 4
			var records []models.LikeRecord
			for range 20 {
				on := target
				if random.IntN(3) > 0 {
					on = models.Target{Kind: models.KindComment, ID: item(random).ID}
				}
				records = append(records, models.LikeRecord{
					Shard: shard,
					Pos:   models.Position{Epoch: 1, Seq: seqs[w]},
					Events: []models.Event{models.LikeEvent(
						on,
						users[random.IntN(writers)].ID,
						random.IntN(2) == 0,
						past,
					)},
					Topic: "likes",
				})
				seqs[w]++
			}
			_, err := likes.New(store).ApplyLikes(ctx, records)
			return err
		case 6:
			c := item(random)
			if random.IntN(3) == 0 {
				return content.New(store).DeleteComment(ctx, c)
			}
			_, err := content.New(store).UpdateComment(
				ctx,
				user.ID,
				c.ID,
				c.Version,
				models.CommentText{Content: fmt.Sprint("edit ", random.Int64())},
			)
			return err
		default:
			now, err := content.New(store).PostByID(ctx, 0, post.ID)
			if err != nil {
				return err
			}
			_, err = content.New(store).UpdatePost(
				ctx,
				ada.ID,
				post.ID,
				now.Version,
				models.PostText{
					Title:   "A post",
					Content: fmt.Sprint("edit ", random.Int64()),
					Tags:    models.Tags{"go", fmt.Sprint("tag", random.IntN(4))},
				},
			)
			return err
		}
	})
	report, err := moderation.New(store).ReportContent(ctx, users[0].ID, models.NewReport{Target: target,
		Reason: "spam"})
	require.NoError(t, err)
	f.goOn(3, 0.2)
	took := map[string]time.Duration{}
	took["pin"] = act(
		t,
		"pin",
		func() error {
			return moderation.New(store).SetPostFlag(ctx, mod.ID, post.ID, models.PostPinned, true, "why")
		},
	)
	took["lock"] = act(
		t,
		"lock",
		func() error {
			return moderation.New(store).SetPostFlag(ctx, mod.ID, post.ID, models.PostLocked, true, "why")
		},
	)
	took["unlock"] = act(
		t,
		"unlock",
		func() error {
			return moderation.New(store).SetPostFlag(ctx, mod.ID, post.ID, models.PostLocked, false, "why")
		},
	)
	f.goOn(3, 0.3)
	took["delete"] = act(t, "delete", func() error {
		return moderation.New(store).RemoveContent(ctx, mod.ID, target,
			"why")
	})
	f.goOn(1, 0.1)
	took["restore"] = act(t, "restore", func() error {
		return moderation.New(store).ReinstateContent(ctx, mod.ID,
			target, "why")
	})
	f.goOn(3, 0.2)
	var caseID int64
	require.NoError(
		t,
		store.Pool().QueryRowContext(ctx, "SELECT case_id FROM reports WHERE id=?", report.ID).Scan(&caseID),
	)
	took["decide"] = act(t, "decide", func() error {
		err := moderation.New(store).ResolveReport(ctx, mod.ID, caseID, models.Verdict{Outcome: models.OutcomeRemoved,
			Note: "why"})
		return err
	})
	f.goOn(1, 0.2)
	written := f.stop()
	t.Logf("%d writes, %d deadlocks, %d lock waits, %d changed meanwhile; the moderator waited %v", written,
		retried.deadlock.Load(), retried.lockWait.Load(), retried.changed.Load(), took)
	checkCounts(t, store)
	for _, kind := range []models.TargetKind{models.KindPost, models.KindComment} {
		tallies, err := likes.New(store).Tally(ctx, kind, 0, 1_000_000)
		require.NoError(t, err)
		for _, tally := range tallies {
			assert.Equal(t, tally.LikeRows, tally.Likes, "likes of %s %d", kind, tally.ID)
		}
	}
	if *floodFor > 0 {
		assert.Less(t, took["delete"], time.Second)
	}
}

// TestWriters_queue lets many do at once what could deadlock: each subtest is a part of the lock order.
func TestWriters_queue(t *testing.T) {
	t.Parallel()
	some := []models.Code{
		models.CodeNotFound,
		models.CodeForbidden,
		models.CodeConflict,
		models.CodePrecondition,
		models.CodeLocked,
		models.CodeUnauthorized,
		models.CodeBanned,
	}
	// setUp returns a store with users of which the first is a moderator, the second an admin.
	setUp := func(t *testing.T) (*db.DB, []models.Author) {
		store, _ := openCounted(t)
		var users []models.Author
		for i := range 8 {
			users = append(users, newUser(t, store, fmt.Sprintf("user%d", i)))
		}
		require.NoError(t, accounts.New(store).SetRole(t.Context(), users[0].ID, models.RoleModerator))
		require.NoError(t, accounts.New(store).SetRole(t.Context(), users[1].ID, models.RoleAdmin))
		return store, users
	}
	rounds := func(n int64) int64 { return n / int64(testkit.Volume(1, 3)) }
	// run lets two of each writer work.
	run := func(t *testing.T, rounds int64, writers ...func(*rand.Rand) error) {
		f := startFlood(
			t,
			2*len(writers),
			some,
			func(random *rand.Rand, w int) error { return writers[w%len(writers)](random) },
		)
		f.goOn(rounds, 1)
		f.stop()
	}

	t.Run("tags", func(t *testing.T) {
		store, users := setUp(t)
		tags := func(random *rand.Rand) models.Tags {
			all := models.Tags{"a", "b", "c", "d", "e", "f"}
			random.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
			return all[:models.MaxTags]
		}
		var latest atomic.Int64
		text := func(random *rand.Rand) models.PostText {
			return models.PostText{
				Title:   "Title",
				Content: fmt.Sprint("some words and ", random.Int64()),
				Tags:    tags(random),
			}
		}
		post := func(random *rand.Rand) int64 { return max(1, latest.Load()-random.Int64N(6)) }
		create := func(random *rand.Rand) error {
			p, err := content.New(store).CreatePost(t.Context(), users[2], text(random))
			if err == nil {
				latest.Store(p.ID)
			}
			return err
		}
		require.NoError(t, create(rand.New(rand.NewPCG(1, 1))))
		run(t, rounds(8), create,
			func(random *rand.Rand) error {
				p, err := content.New(store).PostByID(t.Context(), 0, post(random))
				if err == nil {
					_, err = content.New(store).UpdatePost(t.Context(), users[2].ID, p.ID, p.Version, text(random))
				}
				return err
			},
			func(random *rand.Rand) error {
				return content.New(store).DeletePost(t.Context(), users[2].ID, post(random))
			},
			func(random *rand.Rand) error {
				_, err := content.New(store).RestorePost(t.Context(), users[2].ID, post(random))
				return err
			},
			func(random *rand.Rand) error {
				return moderation.New(store).RemoveContent(
					t.Context(),
					users[0].ID,
					models.Target{Kind: models.KindPost, ID: post(random)},
					"why",
				)
			},
			func(random *rand.Rand) error {
				return moderation.New(store).ReinstateContent(
					t.Context(),
					users[0].ID,
					models.Target{Kind: models.KindPost, ID: post(random)},
					"why",
				)
			})
		assert.Zero(t, count(t, store, `
			SELECT COUNT(*)
			FROM tags t
			WHERE posts_count<>(SELECT COUNT(*) FROM post_tags g WHERE g.tag_id=t.id AND g.status=1)`))
	})

	t.Run("likes", func(t *testing.T) {
		// Likes of neighbouring comments are neighbours in the unique key, too. Each is taken back soon, so that the
		// next one of the same user finds the deleted entry.
		store, users := setUp(t)
		post := newPost(t, store, users[2])
		var comments []models.Target
		for range 6 {
			comments = append(
				comments,
				models.Target{Kind: models.KindComment, ID: newComment(t, store, users[2], post, nil).ID},
			)
		}
		liker := func(random *rand.Rand) int64 { return users[random.IntN(3)].ID }
		writers := []func(*rand.Rand) error{}
		for range 6 {
			writers = append(writers, func(random *rand.Rand) error {
				_, err := likes.New(store).SetLike(
					t.Context(),
					comments[random.IntN(len(comments))],
					liker(random),
					random.IntN(2) == 0,
				)
				return err
			})
		}
		for shard := range 2 {
			var mu sync.Mutex
			var seq int64
			writers = append(writers, func(random *rand.Rand) error {
				mu.Lock()
				defer mu.Unlock()
				var records []models.LikeRecord
				for range 4 {
					seq++
					records = append(
						records,
						models.LikeRecord{
							Shard: shard,
							Pos:   models.Position{Epoch: 1, Seq: seq},
							Topic: "likes",
							Events: []models.Event{models.LikeEvent(
								comments[random.IntN(len(comments))],
								liker(random),
								random.IntN(2) == 0,
								past,
							)},
						},
					)
				}
				_, err := likes.New(store).ApplyLikes(t.Context(), records)
				return err
			})
		}
		run(t, rounds(60), writers...)
		assert.Zero(t, count(t, store, `
			SELECT COUNT(*)
			FROM comments c
			WHERE likes_count<>(SELECT COUNT(*) FROM comment_likes l WHERE l.comment_id=c.id)`))
	})

	t.Run("people", func(t *testing.T) {
		store, users := setUp(t)
		two := func(random *rand.Rand) (int64, int64) {
			a := random.IntN(len(users))
			return users[a].ID, users[(a+1+random.IntN(len(users)-1))%len(users)].ID
		}
		post := newPost(t, store, users[2])
		run(t, rounds(12),
			func(random *rand.Rand) error {
				a, b := two(random)
				_, err := people.New(store).Follow(t.Context(), a, b)
				return err
			},
			func(random *rand.Rand) error {
				a, b := two(random)
				_, err := people.New(store).Unfollow(t.Context(), a, b)
				return err
			},
			func(random *rand.Rand) error {
				a, b := two(random)
				return people.New(store).Block(t.Context(), a, b)
			},
			func(random *rand.Rand) error {
				a, b := two(random)
				return people.New(store).Unblock(t.Context(), a, b)
			},
			func(random *rand.Rand) error {
				a, _ := two(random)
				return reader.New(store).SetBookmark(t.Context(), a, post.ID, random.IntN(2) == 0)
			},
			func(random *rand.Rand) error { // a user who signs up, follows, blocks and leaves
				a, b := two(random)
				u := &models.User{
					Username: fmt.Sprint("leaver", random.Int64()),
					Email:    fmt.Sprint(random.Int64(), "@example.org"),
				}
				if err := accounts.New(store).CreateUser(t.Context(), u); err != nil {
					return err
				}
				if _, err := people.New(store).Follow(t.Context(), u.ID, a); err != nil {
					return err
				}
				if _, err := people.New(store).Follow(
					t.Context(),
					b,
					u.ID,
				); err != nil &&
					models.ErrorCode(err) != models.CodeForbidden {
					return err
				}
				if err := people.New(store).Block(t.Context(), b, u.ID); err != nil {
					return err
				}
				if _, err := privacy.New(store).DeleteUser(t.Context(), u.ID, u.PasswordHash); err != nil {
					return err
				}
				_, err := privacy.New(store).PurgeUser(t.Context(), u.ID)
				return err
			},
			func(random *rand.Rand) error {
				a, _ := two(random)
				return people.New(store).UpdateProfile(t.Context(), a, models.Profile{Bio: fmt.Sprint(random.Int64())})
			})
		assert.Zero(t, count(t, store, `
			SELECT COUNT(*)
			FROM users u
			WHERE deleted_at IS NULL
			AND followers_count<>(SELECT COUNT(*) FROM follows f WHERE f.followed_id=u.id)`))
	})

	t.Run("sessions", func(t *testing.T) {
		store, users := setUp(t)
		user := &models.User{ID: users[2].ID}
		var mu sync.Mutex
		var hashes [][32]byte
		hash := func(random *rand.Rand) [32]byte {
			mu.Lock()
			defer mu.Unlock()
			return hashes[max(0, len(hashes)-1-random.IntN(10))]
		}
		login := func(*rand.Rand) error {
			token, err := accounts.New(store).Login(t.Context(), user, "agent")
			if err == nil {
				mu.Lock()
				defer mu.Unlock()
				hashes = append(hashes, models.HashToken(token))
			}
			return err
		}
		require.NoError(t, login(nil))
		run(t, rounds(12), login, login, login,
			func(random *rand.Rand) error { return accounts.New(store).DeleteSession(t.Context(), hash(random)) },
			func(random *rand.Rand) error {
				return accounts.New(store).UseTokens(t.Context(), [][32]byte{hash(random), hash(random)})
			},
			func(random *rand.Rand) error {
				_, err := accounts.New(store).EndOtherSessions(t.Context(), user.ID, hash(random))
				return err
			},
			func(random *rand.Rand) error {
				_, err := accounts.New(store).EndSession(t.Context(), user.ID, models.SessionID(hash(random)))
				return err
			},
			func(random *rand.Rand) error {
				_, err := accounts.New(store).ChangePassword(t.Context(), user.ID, "", "", hash(random))
				return err
			},
			func(*rand.Rand) error {
				_, err := moderation.New(store).BanUser(
					t.Context(),
					users[0].ID,
					user.ID,
					&models.Ban{Until: time.Now().Add(time.Hour), Reason: "why"},
				)
				return err
			},
			func(*rand.Rand) error {
				return moderation.New(store).UnbanUser(t.Context(), users[0].ID, user.ID, "why")
			},
			func(random *rand.Rand) error {
				role := []models.Role{models.RoleUser, models.RoleAdmin}[random.IntN(2)]
				_, err := accounts.New(store).ChangeRole(t.Context(), users[1].ID, users[3].ID, role, "why")
				return err
			},
			func(*rand.Rand) error {
				_, err := privacy.New(store).DeleteUser(t.Context(), users[3].ID, "wrong")
				return err
			},
			func(*rand.Rand) error {
				_, err := accounts.New(store).PurgeSessions(t.Context(), 100)
				return err
			})
	})

	t.Run("notifications", func(t *testing.T) {
		store, users := setUp(t)
		post := newPost(t, store, users[2])
		last := func() int64 { return int64(count(t, store, "SELECT COALESCE(MAX(id),1) FROM notifications")) }
		comment := func(random *rand.Rand) error {
			_, err := content.New(store).CreateComment(
				t.Context(),
				users[random.IntN(len(users))],
				post.ID,
				nil,
				models.CommentText{Content: "C", Mentions: []string{"user3", "user4"}},
			)
			return err
		}
		run(t, rounds(12), comment, comment,
			func(random *rand.Rand) error {
				return people.New(store).ReadNotificationsUpTo(t.Context(), users[2+random.IntN(3)].ID, last())
			},
			func(random *rand.Rand) error {
				id := last()
				return people.New(store).ReadNotifications(
					t.Context(),
					users[2+random.IntN(3)].ID,
					[]int64{id, max(1, id-3), max(1, id-6)},
				)
			},
			func(*rand.Rand) error {
				exec(t, store, "UPDATE notifications SET read_at='2020-01-01' WHERE id=?", max(1, last()-20))
				_, err := people.New(store).PurgeNotifications(t.Context(), 100)
				return err
			})
	})

	t.Run("threads", func(t *testing.T) {
		store, users := setUp(t)
		posts := []*models.Post{newPost(t, store, users[2]), newPost(t, store, users[2])}
		some := func(random *rand.Rand) (user models.Author, post int64) {
			return users[random.IntN(len(users))], posts[random.IntN(len(posts))].ID
		}
		run(t, rounds(12),
			func(random *rand.Rand) error {
				a, p := some(random)
				text := models.CommentText{Content: "C", Mentions: []string{users[0].Username}}
				_, err := content.New(store).CreateComment(t.Context(), a, p, nil, text)
				return err
			},
			func(random *rand.Rand) error {
				a, p := some(random)
				return reader.New(store).MarkRead(t.Context(), a.ID, p, 0)
			},
			func(random *rand.Rand) error {
				a, p := some(random)
				return people.New(store).SetSubscription(t.Context(), a.ID, p, models.Subscription(random.IntN(3)))
			},
			func(random *rand.Rand) error {
				_, p := some(random)
				_, err := people.New(store).NotifyFollowers(t.Context(), p-1, 1+random.IntN(2), nil)
				return err
			},
			func(random *rand.Rand) error {
				_, p := some(random)
				_, err := people.New(store).NotifyFollowers(t.Context(), p-1, 10, nil)
				return err
			},
			func(random *rand.Rand) error {
				a, _ := some(random)
				return people.New(store).ReadNotificationsUpTo(t.Context(), a.ID, 1<<40)
			},
			func(random *rand.Rand) error {
				a, _ := some(random)
				key := fmt.Sprint("d", random.IntN(2))
				admit := func(*models.Draft) error { return nil }
				text := models.DraftText{Content: fmt.Sprint(random.Int64())}
				if _, _, err := reader.New(store).SaveDraft(t.Context(), a.ID, key, text, admit); err != nil {
					return err
				}
				return reader.New(store).DeleteDraft(t.Context(), a.ID, key)
			})
		assert.Zero(t, count(t, store, `
			SELECT COUNT(*)
			FROM (
				SELECT 1
				FROM notifications
				WHERE kind=8 AND read_at IS NULL
				GROUP BY user_id, post_id
				HAVING COUNT(*)>1
			) n`), "a follower has two unread notifications of a post")
	})

	t.Run("reports", func(t *testing.T) {
		store, users := setUp(t)
		post := newPost(t, store, users[2])
		comment := newComment(t, store, users[2], post, nil)
		targets := []models.Target{{Kind: models.KindPost, ID: post.ID}, {Kind: models.KindComment, ID: comment.ID}}
		one := func(random *rand.Rand) models.Target { return targets[random.IntN(2)] }
		open := func() int64 { return int64(count(t, store, "SELECT COALESCE(MAX(id),0) FROM report_cases")) }
		report := func(random *rand.Rand) error {
			_, err := moderation.New(store).ReportContent(
				t.Context(),
				users[random.IntN(len(users))].ID,
				models.NewReport{Target: one(random), Reason: "spam"},
			)
			return err
		}
		run(t, rounds(12), report, report, report,
			func(*rand.Rand) error { return moderation.New(store).ClaimReport(t.Context(), users[0].ID, open()) },
			func(random *rand.Rand) error {
				outcome := []string{models.OutcomeDismissed, models.OutcomeRemoved}[random.IntN(2)]
				err := moderation.New(store).ResolveReport(
					t.Context(),
					users[0].ID,
					open(),
					models.Verdict{Outcome: outcome, Note: "why"},
				)
				return err
			},
			func(random *rand.Rand) error {
				return moderation.New(store).ReinstateContent(t.Context(), users[1].ID, one(random), "why")
			})
		assert.Zero(t, count(t, store, `
			SELECT COUNT(*)
			FROM report_cases k
			WHERE reporters_count<>(SELECT COUNT(*) FROM reports r WHERE r.case_id=k.id)`))
	})

	t.Run("content", func(t *testing.T) {
		store, users := setUp(t)
		var posts []*models.Post
		var comments []int64
		for i := range 3 {
			posts = append(posts, newPost(t, store, users[2+i]))
			top := newComment(t, store, users[2], posts[i], nil)
			for range 3 {
				comments = append(comments, newComment(t, store, users[3], posts[i], top).ID)
			}
			comments = append(comments, top.ID)
		}
		one := func(random *rand.Rand) models.Target {
			if random.IntN(2) == 0 {
				return models.Target{Kind: models.KindPost, ID: posts[random.IntN(len(posts))].ID}
			}
			return models.Target{Kind: models.KindComment, ID: comments[random.IntN(len(comments))]}
		}
		var external, seq atomic.Int64
		var batch sync.Mutex // positions follow each other
		run(t, 8,
			func(*rand.Rand) error {
				_, err := moderation.New(store).RemoveAll(t.Context(), users[0].ID, users[2].ID, "why")
				return err
			},
			func(*rand.Rand) error {
				_, err := moderation.New(store).UndoOperation(
					t.Context(),
					users[0].ID,
					int64(count(t, store, "SELECT COALESCE(MAX(id),0) FROM content_operations")),
					"why",
				)
				return err
			},
			func(*rand.Rand) error {
				ids, err := moderation.New(store).OpenOperations(t.Context(), 3)
				for _, id := range ids {
					step, err := moderation.New(store).StepOperation(t.Context(), id)
					if err != nil {
						return err
					}
					if err := moderation.New(store).CloseStep(t.Context(), id, step); err != nil {
						return err
					}
				}
				return err
			},
			func(random *rand.Rand) error {
				var batch []models.ImportedComment
				for range 6 {
					p := random.IntN(len(posts))
					batch = append(
						batch,
						models.ImportedComment{
							ExternalID: external.Add(1),
							PostID:     posts[p].ID,
							ParentID:   comments[p*4+random.IntN(4)],
							AuthorID:   users[4].ID,
							Text:       models.CommentText{Content: "C"},
							CreatedAt:  past,
							UpdatedAt:  past,
						},
					)
				}
				_, err := content.New(store).ImportComments(t.Context(), "test", "comment", batch)
				return err
			},
			func(random *rand.Rand) error { return likes.New(store).Recount(t.Context(), one(random)) },
			func(random *rand.Rand) error {
				exec(
					t,
					store,
					"UPDATE comments SET depth=depth+1, updated_at=updated_at WHERE id=?",
					comments[random.IntN(len(comments))],
				)
				return likes.New(store).Recount(
					t.Context(),
					models.Target{Kind: models.KindComment, ID: comments[random.IntN(len(comments))]},
				)
			},
			func(random *rand.Rand) error {
				_, err := likes.New(store).SetLike(
					t.Context(),
					one(random),
					users[random.IntN(len(users))].ID,
					random.IntN(2) == 0,
				)
				return err
			},
			func(random *rand.Rand) error {
				_, err := likes.New(store).WithdrawLike(t.Context(), one(random), users[random.IntN(len(users))].ID,
					func() (bool, error) { return true, nil })
				return err
			},
			func(random *rand.Rand) error {
				batch.Lock()
				defer batch.Unlock()
				var records []models.LikeRecord
				for range 20 {
					records = append(
						records,
						models.LikeRecord{
							Shard: 1,
							Pos:   models.Position{Epoch: 1, Seq: seq.Add(1)},
							Topic: "likes",
							Events: []models.Event{models.LikeEvent(
								one(random),
								users[random.IntN(len(users))].ID,
								random.IntN(2) == 0,
								past,
							)},
						},
					)
				}
				_, err := likes.New(store).ApplyLikes(t.Context(), records)
				return err
			},
			func(random *rand.Rand) error { return likes.New(store).DeleteOrphanLikes(t.Context(), one(random)) },
			func(random *rand.Rand) error { return likes.New(store).PassMilestones(t.Context(), one(random), 10) },
			func(random *rand.Rand) error {
				p := random.IntN(len(posts))
				_, err := content.New(store).CreateComment(
					t.Context(),
					users[5],
					posts[p].ID,
					&comments[p*4+random.IntN(4)],
					models.CommentText{Content: "C"},
				)
				return err
			},
			func(*rand.Rand) error {
				return likes.New(store).VoidLikes(
					t.Context(),
					&likes.LikeVoid{UserID: users[6].ID, RequestedBy: users[0].ID, Reason: "why"},
				)
			},
			func(*rand.Rand) error {
				voids, err := likes.New(store).OpenLikeVoids(t.Context(), time.Now(), 3)
				for _, v := range voids {
					if err := likes.New(store).ScheduleLikeVoid(t.Context(), v.ID, time.Now()); err != nil {
						return err
					}
					if err := likes.New(store).CloseLikeVoid(t.Context(), v.ID); err != nil {
						return err
					}
				}
				return err
			})
		checkCounts(t, store)
	})

	t.Run("rings", func(t *testing.T) {
		store, users := setUp(t)
		ring := func(random *rand.Rand) error {
			at := time.Now().Add(time.Minute) // after what was judged
			_, err := moderation.New(store).SaveRing(
				t.Context(),
				&models.LikeRing{AuthorID: users[2].ID, Coincidences: 3, Occasions: 3, FirstAt: at, LastAt: at,
					Members: []models.RingMember{{UserID: users[3].ID}, {UserID: users[4+random.IntN(4)].ID}}},
			)
			return err
		}
		latest := func() int64 { return int64(count(t, store, "SELECT COALESCE(MAX(id),0) FROM like_rings")) }
		// The moderator has the lowest id; one with a higher id than the members acts, too.
		require.NoError(t, accounts.New(store).SetRole(t.Context(), users[7].ID, models.RoleAdmin))
		run(t, rounds(12), ring, ring,
			func(*rand.Rand) error {
				_, err := moderation.New(store).VoidRing(t.Context(), users[1].ID, latest(), "why")
				return err
			},
			func(*rand.Rand) error {
				_, err := moderation.New(store).VoidRing(t.Context(), users[7].ID, latest(), "why")
				return err
			},
			func(*rand.Rand) error {
				return moderation.New(store).DismissRing(t.Context(), users[1].ID, latest(), "why")
			},
			func(*rand.Rand) error {
				_, err := people.New(store).Follow(t.Context(), users[3].ID, users[7].ID)
				return err
			},
			func(*rand.Rand) error { return people.New(store).Block(t.Context(), users[7].ID, users[3].ID) },
			func(*rand.Rand) error { return people.New(store).Unblock(t.Context(), users[7].ID, users[3].ID) },
			func(*rand.Rand) error {
				_, err := people.New(store).Follow(t.Context(), users[4].ID, users[7].ID)
				return err
			})
	})
}
