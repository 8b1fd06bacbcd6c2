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
	"regexp"
	"slices"
	"strconv"
	"unicode"
	"unicode/utf8"
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

	illegal  int              // characters that XML does not allow, left out or replaced
	noPlace  map[string]int64 // values that the forum has no place for, by what they are
	unread   int              // rows left out because of their values
	examples []string         // what is wrong with the first of them
}

// maxExamples is how many unreadable rows a summary describes.
const maxExamples = 5

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

// openDump reads all files of dir, so that a dump that is not complete is found before the first row is written. Rows
// with unreadable values are left out: nobody can repair a large dump by hand. openDump calls progress with the number
// of bytes read and their total.
func openDump(ctx context.Context, dir string, progress func(done, total int64)) (_ *dump, err error) {
	d := &dump{votes: map[int64]int64{}, noPlace: map[string]int64{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, d.Close())
		}
	}()
	files := []dumpFile{
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
		read, err := d.scan(ctx, open[i], f, func(read int64) { progress(before+read, total) })
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.name, err)
		}
		before += read
		for _, t := range f.tables {
			for _, id := range t.sort() {
				d.leaveOutf("%s: more than one row has the Id %d: only the first one counts", f.name, id)
			}
		}
	}
	progress(total, total)
	return d, nil
}

// dumpFile is one file of a dump.
type dumpFile struct {
	name, root string
	each       func(entry, *row) error // returns an error for unreadable values
	tables     []*table
}

// scan adds every row of a file. It returns the bytes of the file up to its last row.
func (d *dump) scan(
	ctx context.Context, file io.Reader, f dumpFile, progress func(read int64),
) (read int64, err error) {
	illegal, err := scan(ctx, file, f.root, func(e entry, line int, r *row) {
		read = e.offset + int64(e.length)
		progress(read)
		if err := f.each(e, r); err != nil {
			d.leaveOutf("%s, line %d: %w", f.name, line, err)
		}
	})
	d.illegal += illegal
	return read, err
}

// leaveOutf counts a row that is left out, and keeps the reason as an example.
func (d *dump) leaveOutf(format string, args ...any) {
	d.unread++
	if len(d.examples) < maxExamples {
		d.examples = append(d.examples, fmt.Errorf(format, args...).Error())
	}
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

// countNoPlace counts a value that the forum has no place for.
func (d *dump) countNoPlace(r *row, attribute, what string) {
	if r.optional(attribute) != "" {
		d.noPlace[what]++
	}
}

func (d *dump) addUser(e entry, r *row) error {
	u, err := decodeUser(r)
	if err != nil {
		return err
	}
	d.countNoPlace(r, "Location", "locations of users")
	d.countNoPlace(r, "WebsiteUrl", "websites of users")
	e.id, e.created = u.id, u.created.UnixMilli()
	d.users.rows = append(d.users.rows, e)
	return nil
}

func (d *dump) addPost(e entry, r *row) error {
	p, err := decodePost(r)
	if err != nil {
		return err
	}
	d.countNoPlace(r, "AcceptedAnswerId", "accepted answers")
	d.countNoPlace(r, "ClosedDate", "closings of questions")
	if p.owner == 0 {
		d.countNoPlace(r, "OwnerDisplayName", "names of deleted accounts")
	}
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
	return nil
}

func (d *dump) addComment(e entry, r *row) error {
	c, err := decodeComment(r)
	if err != nil {
		return err
	}
	if c.owner == 0 {
		d.countNoPlace(r, "UserDisplayName", "names of deleted accounts")
	}
	e.id, e.created, e.likes = c.id, c.created.UnixMilli(), int32(c.score)
	d.comments.rows = append(d.comments.rows, e)
	return nil
}

func (d *dump) addVote(_ entry, r *row) error {
	v, err := decodeVote(r)
	if err != nil {
		return err
	}
	if v.kind == voteUp {
		d.votes[v.post]++
	} else {
		d.otherVotes++
	}
	return nil
}

// sort sorts the rows by time. Of several rows with one id, it keeps the first. It returns the ids of the others.
func (t *table) sort() (repeated []int64) {
	slices.SortStableFunc(t.rows, func(a, b entry) int { return cmp.Compare(a.id, b.id) })
	kept := t.rows[:0]
	for i, e := range t.rows {
		if i > 0 && e.id == kept[len(kept)-1].id {
			repeated = append(repeated, e.id)
			continue
		}
		kept = append(kept, e)
	}
	t.rows = kept
	slices.SortStableFunc(t.rows, func(a, b entry) int { return cmp.Compare(a.created, b.created) })
	return repeated
}

// read reads one row again.
func (t *table) read(e entry) (*row, error) {
	buf := make([]byte, e.length)
	if _, err := t.file.ReadAt(buf, e.offset); err != nil {
		return nil, fmt.Errorf("%s: row %d: %w", t.name, e.id, err)
	}
	token, err := newDecoder(newRowReader(bytes.NewReader(buf))).Token()
	start, ok := token.(xml.StartElement)
	if err != nil || !ok {
		return nil, fmt.Errorf("%s: row %d was changed while the import ran", t.name, e.id)
	}
	return &row{attrs: start.Attr}, nil
}

// newDecoder returns a decoder that reads what exports of forums really contain. An unknown entity, or an & that was
// not escaped, is text.
func newDecoder(r io.Reader) *xml.Decoder {
	d := xml.NewDecoder(r)
	d.Strict, d.Entity = false, xml.HTMLEntity
	return d
}

// scan calls each with every row of a file and its line. It returns how many characters were left out. The error of a
// file that is not a dump, or not complete, has the number of the row.
func scan(
	ctx context.Context, file io.Reader, root string, each func(e entry, line int, r *row),
) (illegal int, err error) {
	reader := newRowReader(file)
	in := newDecoder(reader)
	depth, rows, found := 0, 0, false
	for {
		reader.left = maxRow
		begin := in.InputOffset() + reader.removed
		token, err := in.Token()
		switch {
		case errors.Is(err, io.EOF) && !found:
			return 0, fmt.Errorf("it holds no <%s>", root)
		case errors.Is(err, io.EOF):
			return reader.illegal, nil
		case errors.Is(err, errRowTooLong):
			return 0, fmt.Errorf("row %d: %w", rows+1, err)
		case err != nil:
			line, column := in.InputPos()
			return 0, fmt.Errorf("row %d (line %d, column %d): %w", rows+1, line, column, err)
		}
		switch token := token.(type) {
		case xml.StartElement:
			depth++
			switch {
			case depth == 1 && token.Name.Local != root:
				return 0, fmt.Errorf("it holds <%s>, not <%s>", shorten(token.Name.Local), root)
			case depth == 1:
				found = true
				continue
			case depth > 2 || token.Name.Local != "row":
				return 0, fmt.Errorf("row %d: %w, found <%s>", rows+1, errNotRow, shorten(token.Name.Local))
			}
			rows++
			if rows%1000 == 0 && ctx.Err() != nil {
				return 0, ctx.Err()
			}
			line, _ := in.InputPos()
			length := in.InputOffset() + reader.removed - begin
			each(entry{offset: begin, length: int32(length)}, line, &row{attrs: token.Attr})
		case xml.EndElement:
			depth--
		case xml.CharData:
			if depth > 0 && len(bytes.TrimSpace(token)) > 0 {
				return 0, fmt.Errorf("row %d: %w, found %q", rows+1, errNotRow, shorten(string(token)))
			}
		}
	}
}

var errRowTooLong = fmt.Errorf("it is longer than %d MiB", maxRow>>20)

// rowReader limits the length of a row, and leaves out the characters that XML does not allow, in any spelling: exports
// contain what people once pasted. Bytes that are not UTF-8 become U+FFFD. It is an io.ByteReader, so that the decoder
// does not read ahead.
type rowReader struct {
	r       *bufio.Reader
	left    int
	legal   int    // bytes that were looked at, and are left to be returned
	pending string // to be returned before the next byte
	removed int64  // bytes read more than returned, without what is pending
	illegal int    // characters left out or replaced
}

func newRowReader(r io.Reader) *rowReader {
	return &rowReader{r: bufio.NewReaderSize(r, 1<<16), left: maxRow}
}

// maxReference is the length of the longest reference to a character that is looked at, in bytes.
const maxReference = 16

func (r *rowReader) ReadByte() (byte, error) {
	for r.pending == "" {
		if r.left <= 0 {
			return 0, errRowTooLong
		}
		var n int
		var replacement string
		if r.legal == 0 {
			n, replacement = r.look()
		}
		if n == 0 {
			r.legal = max(0, r.legal-1)
			r.left--
			return r.r.ReadByte()
		}
		_, _ = r.r.Discard(n) // they were peeked
		r.left -= n
		r.illegal++
		r.removed += int64(n - len(replacement))
		r.pending = replacement
	}
	b := r.pending[0]
	r.pending = r.pending[1:]
	return b, nil
}

// look returns the length of an illegal character that is next, and what replaces it. If the next one is legal, look
// returns 0 and sets r.legal to its length.
func (r *rowReader) look() (n int, replacement string) {
	next, _ := r.r.Peek(1)
	if len(next) == 0 || next[0] != '&' && next[0] >= ' ' && next[0] < utf8.RuneSelf {
		return 0, ""
	}
	next, _ = r.r.Peek(maxReference) // fewer at the end of the file
	if n, replacement = illegalAt(next); n == 0 && next[0] >= utf8.RuneSelf {
		_, r.legal = utf8.DecodeRune(next)
	}
	return n, replacement
}

var reference = regexp.MustCompile(`^&#(?:[xX]([0-9A-Fa-f]+)|([0-9]+));`)

// illegalAt returns the length of the illegal character at the beginning of b, and what replaces it. The length is 0 if
// the character is legal.
func illegalAt(b []byte) (n int, replacement string) {
	if b[0] == '&' {
		found := reference.FindSubmatch(b)
		if found == nil {
			return 0, ""
		}
		digits, base := string(found[1]), 16
		if digits == "" {
			digits, base = string(found[2]), 10
		}
		if c, err := strconv.ParseInt(digits, base, 32); err == nil && isLegal(rune(c)) {
			return 0, ""
		}
		return len(found[0]), ""
	}
	c, size := utf8.DecodeRune(b)
	switch {
	case c == utf8.RuneError && size == 1:
		return 1, string(utf8.RuneError)
	case isLegal(c):
		return 0, ""
	}
	return size, ""
}

// isLegal reports whether XML allows the character, and Unicode in texts that are exchanged: it is not one of the
// noncharacters.
func isLegal(c rune) bool {
	return (c == '\t' || c == '\n' || c == '\r' || c >= ' ') && utf8.ValidRune(c) &&
		!unicode.Is(unicode.Noncharacter_Code_Point, c)
}

// Read is never called: the decoder calls ReadByte instead.
func (r *rowReader) Read([]byte) (int, error) { return 0, errors.New("the decoder reads bytes") }
