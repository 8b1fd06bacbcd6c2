package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"likewise/handlers/signin"
	"likewise/models"
	"likewise/models/accounts"
	"likewise/models/db"
	"likewise/models/privacy"
)

type userCmd struct {
	Create   userCreateCmd   `cmd:"" help:"Create an account."`
	Promote  userPromoteCmd  `cmd:"" help:"Change the role of an account."`
	Password userPasswordCmd `cmd:"" help:"${user_password_help}"`
	Delete   userDeleteCmd   `cmd:"" help:"${user_delete_help}"`
	Token    userTokenCmd    `cmd:"" help:"Print tokens for scripts, one per line: user_id<TAB>token."`
}

type userCreateCmd struct {
	mysqlFlags
	Name          string `arg:"" help:"Username."`
	Email         string `arg:"" help:"E-mail address."`
	Role          string `enum:"user,moderator,admin" default:"user" help:"${enum}."`
	PasswordStdin bool   `help:"${password_help}"`
}

// Run creates the account, and prints a generated password.
func (u *userCreateCmd) Run(ctx context.Context, out output) error {
	password, err := u.password(out)
	if err != nil {
		return err
	}
	store, err := u.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	user, err := createUser(
		ctx,
		store,
		models.Registration{Username: u.Name, Email: u.Email, Password: password},
		u.Role,
	)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("user_id\t%d\n", user.ID)
	if !u.PasswordStdin {
		text += fmt.Sprintf("password\t%s\n", password)
	}
	if _, err := io.WriteString(out.stdout, text); err != nil {
		return fmt.Errorf("the account was created, but its password was not written: "+
			"set one with `likewise user password %s`: %w", user.Username, err)
	}
	return nil
}

// password reads the password of the new account, or generates one.
func (u *userCreateCmd) password(out output) (string, error) {
	if u.PasswordStdin {
		return readPassword(out.stdin)
	}
	if err := keepsOutput(out.stdout); err != nil {
		return "", fmt.Errorf("%w: use --password-stdin", err)
	}
	password, _ := models.NewToken()
	return password, nil
}

func createUser(ctx context.Context, store *db.DB, r models.Registration, role string) (*models.User, error) {
	if err := r.Validate(); err != nil {
		return nil, err
	}
	parsed, err := models.ParseRole(role)
	if err != nil {
		return nil, err
	}
	hash, err := signin.HashPassword(r.Password)
	if err != nil {
		return nil, err
	}
	user := &models.User{Username: r.Username, Email: r.Email, PasswordHash: hash, Role: parsed}
	return user, accounts.New(store).CreateUser(ctx, user)
}

type userPromoteCmd struct {
	mysqlFlags
	Name string `arg:"" help:"Username or e-mail address."`
	Role string `arg:"" enum:"user,moderator,admin" help:"${enum}."`
}

// Run changes the role.
func (u *userPromoteCmd) Run(ctx context.Context, out output) error {
	store, err := u.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	user, err := accounts.New(store).UserByLogin(ctx, u.Name)
	if err != nil {
		return err
	}
	role, err := models.ParseRole(u.Role)
	if err != nil {
		return err
	}
	if err := accounts.New(store).SetRole(ctx, user.ID, role); err != nil {
		return err
	}
	fmt.Fprintf(out.stdout, "%s now has the role %s.\n", user.Username, role)
	return nil
}

type userPasswordCmd struct {
	mysqlFlags
	Name string `arg:"" help:"Username or e-mail address."`
}

// Run reads a new password, and sets it.
func (u *userPasswordCmd) Run(ctx context.Context, out output) error {
	store, err := u.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	user, err := accounts.New(store).UserByLogin(ctx, u.Name)
	if err != nil {
		return err
	}
	password, err := newPassword(ctx, out.stdin, user.Username)
	if err != nil {
		return err
	}
	if err := user.ValidatePassword("password", password); err != nil {
		return err
	}
	hash, err := signin.HashPassword(password)
	if err != nil {
		return err
	}
	// no session is kept
	ended, err := accounts.New(store).ChangePassword(ctx, user.ID, user.PasswordHash, hash, [32]byte{})
	if err != nil {
		return err
	}
	fmt.Fprintf(out.stdout, "%s has a new password. Ended sessions and API tokens: %d.\n", user.Username, len(ended))
	return nil
}

// readPassword reads the first line. It skips the mark that editors and shells of Windows put before UTF-8.
func readPassword(in io.Reader) (string, error) {
	line, err := bufio.NewReader(in).ReadString('\n')
	if err != nil && line == "" {
		return "", fmt.Errorf("read password: %w", err)
	}
	if strings.ContainsRune(line, 0) || !utf8.ValidString(line) {
		return "", errors.New("read password: the input is not text in UTF-8")
	}
	return strings.TrimPrefix(strings.TrimRight(line, "\r\n"), "\ufeff"), nil
}

// newPassword reads a password from a terminal twice, without showing it, and from any other input once.
func newPassword(ctx context.Context, in io.Reader, of string) (string, error) {
	terminal, ok := in.(*os.File)
	if !ok || !term.IsTerminal(int(terminal.Fd())) {
		return readPassword(in)
	}
	first, err := ask(ctx, terminal, "New password of "+of+": ")
	if err != nil {
		return "", err
	}
	second, err := ask(ctx, terminal, "The same again: ")
	if err == nil && first != second {
		err = errors.New("the two passwords differ")
	}
	return first, err
}

// ask reads a line that the terminal does not show. Whatever ends it, the terminal shows input again.
func ask(ctx context.Context, terminal *os.File, question string) (answer string, err error) {
	fd := int(terminal.Fd())
	state, err := term.GetState(fd)
	if err != nil {
		return "", fmt.Errorf("read password: %w", err)
	}
	defer func() { err = errors.Join(err, term.Restore(fd, state)) }()
	fmt.Fprint(os.Stderr, question)
	defer fmt.Fprintln(os.Stderr)
	type line struct {
		text []byte
		err  error
	}
	read := make(chan line, 1)
	go func() { // until the process ends, if ctx ends first
		text, err := term.ReadPassword(fd)
		read <- line{text, err}
	}()
	select {
	case <-ctx.Done():
		return "", fmt.Errorf("read password: %w", ctx.Err())
	case l := <-read:
		if l.err != nil {
			return "", fmt.Errorf("read password: %w", l.err)
		}
		return string(l.text), nil
	}
}

type userDeleteCmd struct {
	mysqlFlags
	Name   string `arg:"" help:"Username or e-mail address."`
	Reason string `required:"" help:"Why, for the moderation log."`
}

// Run deletes the account.
func (u *userDeleteCmd) Run(ctx context.Context, out output) error {
	store, err := u.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	user, err := accounts.New(store).UserByLogin(ctx, u.Name)
	if err != nil {
		return err
	}
	ban, err := privacy.New(store).DeleteBanned(ctx, user.ID, u.Reason)
	if err != nil {
		return err
	}
	until := "permanently"
	if !ban.Permanent() {
		until = "until " + ban.Until.UTC().Format(time.RFC3339)
	}
	fmt.Fprintf(out.stdout, "%s is deleted, and banned %s.\n", user.Username, until)
	return nil
}

type userTokenCmd struct {
	mysqlFlags
	Name  string `arg:"" optional:"" help:"Username or e-mail address."`
	Count int    `help:"${count_help}"`
}

// Run prints tokens. Only their hashes are stored.
func (u *userTokenCmd) Run(ctx context.Context, out output) error {
	if (u.Name == "") == (u.Count == 0) || u.Count < 0 || u.Count > 1_000_000 {
		return errors.New("name either a user or --count, from 1 to 1000000")
	}
	if err := keepsOutput(out.stdout); err != nil {
		return err
	}
	store, err := u.open(ctx, out.log, nil)
	if err != nil {
		return err
	}
	defer store.Close()
	ids, err := u.users(ctx, store)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(out.stdout)
	tokens, err := accounts.New(store).CreateSessions(ctx, ids)
	if err != nil {
		return err
	}
	for i, id := range ids {
		fmt.Fprintf(w, "%d\t%s\n", id, tokens[i])
	}
	if err := w.Flush(); err != nil {
		return fmt.Errorf("%d tokens were created, but not all were written: "+
			"a new password of an account ends its tokens: %w", len(tokens), err)
	}
	return nil
}

func (u *userTokenCmd) users(ctx context.Context, store *db.DB) ([]int64, error) {
	if u.Name != "" {
		user, err := accounts.New(store).UserByLogin(ctx, u.Name)
		if err != nil {
			return nil, err
		}
		return []int64{user.ID}, nil
	}
	ids, err := accounts.New(store).UserIDs(ctx, u.Count)
	if err != nil {
		return nil, err
	}
	created, err := accounts.New(store).CreateScripts(ctx, u.Count-len(ids))
	return append(ids, created...), err
}
