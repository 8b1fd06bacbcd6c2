package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"likewise/handlers/signin"
	"likewise/models"
)

type userCmd struct {
	Create  userCreateCmd  `cmd:"" help:"Create an account."`
	Promote userPromoteCmd `cmd:"" help:"Change the role of an account."`
	Delete  userDeleteCmd  `cmd:"" help:"${user_delete_help}"`
	Token   userTokenCmd   `cmd:"" help:"Print tokens for scripts, one per line: user_id<TAB>token."`
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
	password, _ := models.NewToken()
	if u.PasswordStdin {
		line, err := bufio.NewReader(out.stdin).ReadString('\n')
		if err != nil && line == "" {
			return fmt.Errorf("read password: %w", err)
		}
		password = strings.TrimRight(line, "\r\n")
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
	fmt.Fprintf(out.stdout, "user_id\t%d\n", user.ID)
	if !u.PasswordStdin {
		fmt.Fprintf(out.stdout, "password\t%s\n", password)
	}
	return nil
}

func createUser(ctx context.Context, store *models.Store, r models.Registration, role string) (*models.User, error) {
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
	return user, store.CreateUser(ctx, user)
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
	user, err := store.UserByLogin(ctx, u.Name)
	if err != nil {
		return err
	}
	role, err := models.ParseRole(u.Role)
	if err != nil {
		return err
	}
	if err := store.SetRole(ctx, user.ID, role); err != nil {
		return err
	}
	fmt.Fprintf(out.stdout, "%s now has the role %s.\n", user.Username, role)
	return nil
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
	user, err := store.UserByLogin(ctx, u.Name)
	if err != nil {
		return err
	}
	ban, err := store.DeleteBanned(ctx, user.ID, u.Reason)
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
	for _, id := range ids {
		token, err := store.CreateSession(ctx, id)
		if err != nil {
			return err
		}
		fmt.Fprintf(w, "%d\t%s\n", id, token)
	}
	return w.Flush()
}

func (u *userTokenCmd) users(ctx context.Context, store *models.Store) ([]int64, error) {
	if u.Name != "" {
		user, err := store.UserByLogin(ctx, u.Name)
		if err != nil {
			return nil, err
		}
		return []int64{user.ID}, nil
	}
	ids, err := store.UserIDs(ctx, u.Count)
	if err != nil {
		return nil, err
	}
	for n := 1; len(ids) < u.Count; n++ {
		name := "script-" + strconv.Itoa(n)
		user := &models.User{Username: name, Email: name + "@script" + models.NoEmailDomain}
		if err := store.CreateUser(ctx, user); models.ErrorCode(err) == models.CodeConflict {
			continue
		} else if err != nil {
			return nil, err
		}
		ids = append(ids, user.ID)
	}
	return ids, nil
}
