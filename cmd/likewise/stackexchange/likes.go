package stackexchange

import (
	"context"
	"fmt"
	"hash/fnv"
	"sync"
	"time"

	"github.com/sethvargo/go-retry"
	"golang.org/x/sync/errgroup"

	"likewise/models"
	"likewise/models/content"
	"likewise/models/likes"
)

const (
	concurrency = 16               // targets whose likes are sent at once; the likes of a target are sent one by one
	patience    = time.Minute      // for retries of a refused like
	answerTime  = 15 * time.Second // for one attempt
)

// likes sends the likes of all targets that are not marked as done.
func (im *importer) likes(ctx context.Context) error {
	voters := make([]int64, len(im.dump.users.rows))
	for i, e := range im.dump.users.rows {
		voters[i] = im.users[e.id]
	}
	byVotes := func(e entry) int64 { return im.dump.votes[e.id] }
	byScore := func(e entry) int64 { return int64(e.likes) }

	posts := likeStage{im: im, stage: StagePostLikes, tally: &im.summary.PostLikes, voters: voters}
	comments := likeStage{im: im, stage: StageCommentLikes, tally: &im.summary.CommentLikes, voters: voters}
	for _, s := range []struct {
		stage  *likeStage
		kind   string
		rows   []entry
		target models.TargetKind
		ids    map[int64]int64
		likes  func(entry) int64
	}{
		{&posts, kindPostLikes, im.dump.questions.rows, models.KindPost, im.questions, byVotes},
		{&comments, kindAnswerLikes, im.dump.answers.rows, models.KindComment, im.answers, byVotes},
		{&comments, kindCommentLikes, im.dump.comments.rows, models.KindComment, im.comments, byScore},
	} {
		if err := s.stage.add(ctx, s.kind, s.rows, s.target, s.ids, s.likes); err != nil {
			return err
		}
	}
	im.countLostVotes()
	if err := posts.send(ctx); err != nil {
		return err
	}
	return comments.send(ctx)
}

// countLostVotes counts the up-votes whose post is not in the dump.
func (im *importer) countLostVotes() {
	var lost int64
	for _, n := range im.dump.votes {
		lost += n
	}
	for _, t := range []table{im.dump.questions, im.dump.answers} {
		for _, e := range t.rows {
			lost -= im.dump.votes[e.id]
		}
	}
	im.summary.PostLikes.Read += lost
	im.summary.PostLikes.skip(NoPost, lost)
}

// job holds the likes of one target.
type job struct {
	kind     string
	external int64
	target   models.Target
	likes    int64
}

// likeStage sends the likes of posts, or those of comments.
type likeStage struct {
	im     *importer
	stage  Stage
	voters []int64
	jobs   []job
	total  int64

	mu    sync.Mutex // guards tally and done
	tally *Tally
	done  int64
}

// add adds a job for each row whose likes are not marked as done.
func (s *likeStage) add(
	ctx context.Context,
	kind string,
	rows []entry,
	target models.TargetKind,
	ids map[int64]int64,
	likes func(entry) int64,
) error {
	marked, err := content.New(s.im.Store).Imported(ctx, s.im.source, kind)
	if err != nil {
		return err
	}
	for _, e := range rows {
		n := likes(e)
		if n == 0 {
			continue
		}
		s.tally.Read += n
		id, there := ids[e.id]
		if !there {
			s.tally.skip(LeftOut, n)
			continue
		}
		if limit := int64(len(s.voters)); n > limit {
			s.tally.skip(TooFewUsers, n-limit)
			n = limit
		}
		if _, done := marked[e.id]; done {
			s.tally.Present += n
			continue
		}
		s.jobs = append(s.jobs, job{kind: kind, external: e.id, target: models.Target{Kind: target, ID: id}, likes: n})
		s.total += n
	}
	return nil
}

func (s *likeStage) send(ctx context.Context) error {
	s.im.Progress(s.stage, 0, s.total)
	group, sending := errgroup.WithContext(ctx)
	group.SetLimit(concurrency)
	for _, j := range s.jobs {
		if sending.Err() != nil {
			break
		}
		group.Go(func() error { return s.sendTarget(sending, j) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	return ctx.Err() // ctx may have ended between two targets
}

// sendTarget sends the likes of one target, and marks them as done after the last. If a run ends earlier, the next run
// sends all of them again, which does not change likes that are already set.
func (s *likeStage) sendTarget(ctx context.Context, j job) error {
	if err := likes.New(s.im.Store).PassMilestones(ctx, j.target, j.likes); err != nil {
		return err
	}
	for i := range j.likes {
		err := setLike(ctx, s.im.Likes, j.target, s.voters[voter(j.kind, j.external, i, int64(len(s.voters)))])
		if models.ErrorCode(err) == models.CodeNotFound {
			s.count(j.likes-i, func(t *Tally) { t.skip(DeletedHere, j.likes-i) })
			return nil
		}
		if err != nil {
			return err
		}
		s.count(1, func(t *Tally) { t.Created++ })
	}
	return content.New(s.im.Store).RecordImported(ctx, s.im.source, j.kind, j.external, j.target.ID)
}

func (s *likeStage) count(likes int64, change func(*Tally)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change(s.tally)
	s.done += likes
	s.im.Progress(s.stage, s.done, s.total)
}

// setLike sends one like. While the server is unavailable, it retries for patience; a repeated like changes nothing.
func setLike(ctx context.Context, likes Likes, target models.Target, userID int64) error {
	backoff := retry.WithMaxDuration(
		patience,
		retry.WithCappedDuration(5*time.Second, retry.NewExponential(50*time.Millisecond)),
	)
	err := retry.Do(ctx, backoff, func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		_, err := likes.SetLike(ctx, target, userID, true)
		if err != nil && models.ErrorCode(err) == models.CodeUnavailable {
			return retry.RetryableError(err)
		}
		return err
	})
	if err != nil && models.ErrorCode(err) == models.CodeUnavailable && ctx.Err() == nil {
		return fmt.Errorf("likes were not accepted for %v: %w", patience, err)
	}
	return err
}

// voter returns the index of the n-th user who likes a target, 0 ≤ n < users. The first index and the stride from one
// user to the next depend on the target alone. The stride and the number of users are coprime, so no user occurs twice.
func voter(kind string, external, n, users int64) int64 {
	h := fnv.New64a()
	fmt.Fprintf(h, "%s:%d", kind, external)
	seed := h.Sum64()
	start, stride := int64(seed>>32)%users, 1+int64(seed&0xffff_ffff)%users
	for gcd(stride, users) != 1 {
		stride++
	}
	return (start + n*(stride%users)) % users
}

func gcd(a, b int64) int64 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
