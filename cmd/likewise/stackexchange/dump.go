package stackexchange

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
)

// maxRow bounds a row, in bytes, and with it the memory that a dump can use. Posts of Stack Exchange have at most
// 30,000 characters.
const maxRow = 4 << 20

// dump is an index of a checked dump. It holds the order in which the rows are written, and the offset of each row. The
// rows themselves stay in the files.
type dump struct {
	users, questions, answers, comments table

	votes      map[int64]int64 // up-votes by post
	tagWikis   int
	otherPosts int // neither question, answer nor tag wiki
	otherVotes int // not up-votes
}

// table lists the rows of one file, oldest first.
type table struct {
	name string
	file *os.File
	rows []entry
}

// entry locates a row in its file, and holds the values that rows are sorted by.
type entry struct {
	id      int64
	created int64 // milliseconds since 1970
	parent  int64 // the question of an answer
	offset  int64
	length  int32
	likes   int32 // the score of a comment
}

// openDump reads and checks all files of dir, so that errors in a dump are found before the first row is written. It
// calls progress with the number of bytes read and their total.
func openDump(ctx context.Context, dir string, progress func(done, total int64)) (_ *dump, err error) {
	d := &dump{votes: map[int64]int64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	files := []struct {
		name, root string
		each       func(entry, *row) error
		tables     []*table
	}{
		{"Users.xml", "users", d.addUser, []*table{&d.users}},
		{"Posts.xml", "posts", d.addPost, []*table{&d.questions, &d.answers}},
		{"Comments.xml", "comments", d.addComment, []*table{&d.comments}},
		{"Votes.xml", "votes", d.addVote, nil},
	}
	open := make([]*os.File, len(files))
	var total, before int64
	for i, f := range files {
		if open[i], err = openFile(filepath.Join(dir, f.name)); err != nil {
			closeAll(open[:i])
			return nil, err
		}
		info, err := open[i].Stat()
		if err != nil {
			closeAll(open[:i+1])
			return nil, fmt.Errorf("read dump: %w", err)
		}
		total += info.Size()
		for _, t := range f.tables {
			t.name, t.file = f.name, open[i]
		}
	}
	defer open[3].Close() // votes are counted here, and not read again
	for i, f := range files {
		read := int64(0)
		err := scan(ctx, open[i], f.root, func(e entry, r *row) error {
			read = e.offset + int64(e.length)
			progress(before+read, total)
			return f.each(e, r)
		})
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		before += read
		for _, t := range f.tables {
			if err := t.sort(); err != nil {
				return nil, fmt.Errorf("%s: %w", f.name, err)
			}
		}
	}
	progress(total, total)
	return d, nil
}

func openFile(path string) (*os.File, error) {
	f, err := os.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf(
			"%s is missing: a dump is a folder with Users.xml, Posts.xml, Comments.xml and Votes.xml",
			path,
		)
	}
	if err != nil {
		return nil, fmt.Errorf("read dump: %w", err)
	}
	return f, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// Close closes the files.
func (d *dump) Close() error {
	var err error
	for _, t := range []table{d.users, d.questions, d.comments} { // answers share the file of the questions
		if t.file != nil {
			err = errors.Join(err, t.file.Close())
		}
	}
	return err
}

func (d *dump) addUser(e entry, r *row) error {
	u, err := decodeUser(r)
	e.id, e.created = u.id, u.created.UnixMilli()
	d.users.rows = append(d.users.rows, e)
	return err
}

func (d *dump) addPost(e entry, r *row) error {
	p, err := decodePost(r)
	e.id, e.created, e.parent = p.id, p.created.UnixMilli(), p.parent
	switch p.kind {
	case typeQuestion:
		d.questions.rows = append(d.questions.rows, e)
	case typeAnswer:
		d.answers.rows = append(d.answers.rows, e)
	case 3, 4, 5: // orphaned wiki, excerpt, wiki
		d.tagWikis++
	default:
		d.otherPosts++
	}
	return err
}

func (d *dump) addComment(e entry, r *row) error {
	c, err := decodeComment(r)
	e.id, e.created, e.likes = c.id, c.created.UnixMilli(), int32(c.score)
	d.comments.rows = append(d.comments.rows, e)
	return err
}

func (d *dump) addVote(_ entry, r *row) error {
	v, err := decodeVote(r)
	if err == nil && v.kind == voteUp {
		d.votes[v.post]++
	} else {
		d.otherVotes++
	}
	return err
}

// sort sorts the rows by time. It returns an error if an id occurs twice.
func (t *table) sort() error {
	slices.SortFunc(t.rows, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	for i := 1; i < len(t.rows); i++ {
		if t.rows[i].id == t.rows[i-1].id {
			return fmt.Errorf("two rows have the Id %d", t.rows[i].id)
		}
	}
	slices.SortStableFunc(t.rows, func(a, b entry) int { return cmp.Compare(a.created, b.created) })
	return nil
}

// read reads one row again.
func (t *table) read(e entry) (*row, error) {
	buf := make([]byte, e.length)
	if _, err := t.file.ReadAt(buf, e.offset); err != nil {
		return nil, fmt.Errorf("%s: row %d: %w", t.name, e.id, err)
	}
	token, err := xml.NewDecoder(bytes.NewReader(buf)).Token()
	start, ok := token.(xml.StartElement)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: row %d was changed while the import ran", t.name, e.id)
	}
	return &row{attrs: start.Attr}, nil
}

// scan calls each with every row of a file. If each fails, scan returns its error with the number and line of the row.
func scan(ctx context.Context, file io.Reader, root string, each func(entry, *row) error) error {
	limited := &rowReader{r: bufio.NewReaderSize(file, 1<<16), left: maxRow}
	in := xml.NewDecoder(limited)
	depth, rows, found := 0, 0, false
	for {
		limited.left = maxRow
		begin := in.InputOffset()
		token, err := in.Token()
		switch {
		case errors.Is(err, io.EOF) && !found:
			return fmt.Errorf("it holds no <%s>", root)
		case errors.Is(err, io.EOF):
			return nil
		case errors.Is(err, errRowTooLong):
			return fmt.Errorf("row %d: %w", rows+1, err)
		case err != nil:
			line, column := in.InputPos()
			return fmt.Errorf("row %d (line %d, column %d): %w", rows+1, line, column, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			depth++
			switch {
			case depth == 1 && token.Name.Local != root:
				return fmt.Errorf("it holds <%s>, not <%s>", shorten(token.Name.Local), root)
			case depth == 1:
				found = true
				continue
			case depth > 2 || token.Name.Local != "row":
				return fmt.Errorf("row %d: %w, found <%s>", rows+1, errNotRow, shorten(token.Name.Local))
			}
			rows++
			if rows%1000 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			e := entry{offset: begin, length: int32(in.InputOffset() - begin)}
			if err := each(e, &row{attrs: token.Attr}); err != nil {
				line, _ := in.InputPos()
				return fmt.Errorf("row %d (line %d): %w", rows, line, err)
			}
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth > 0 && len(bytes.TrimSpace(token)) > 0 {
				return fmt.Errorf("row %d: %w, found %q", rows+1, errNotRow, shorten(string(token)))
			}
		}
	}
}

var errRowTooLong = fmt.Errorf("it is longer than %d MiB", maxRow>>20)

// rowReader limits the length of a row. It is an io.ByteReader, so that the decoder does not read ahead.
type rowReader struct {
	r    *bufio.Reader
	left int
}

func (r *rowReader) ReadByte() (byte, error) {
	if r.left == 0 {
		return 0, errRowTooLong
	}
	r.left--
	return r.r.ReadByte()
}

// Read is never called: the decoder calls ReadByte instead.
func (r *rowReader) Read([]byte) (int, error) { return 0, errors.New("the decoder reads bytes") }
