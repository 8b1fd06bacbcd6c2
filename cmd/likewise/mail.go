package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"

	"likewise/handlers"
	"likewise/mail"
	"likewise/models/accounts"
	"likewise/workers"
)

// smtpFlag is the server of mails. Without one, what needs mail is off. The API does not connect to it.
type smtpFlag struct {
	SMTP string `name:"smtp" env:"LIKEWISE_SMTP" placeholder:"${smtp}" help:"${smtp_help}"`
}

// check returns an error for a server that cannot be read, and for one without a URL for the links in mails.
func (f smtpFlag) check(publicURL string) error {
	if f.SMTP == "" {
		return nil
	}
	if err := mail.CheckServer(f.SMTP); err != nil {
		return fmt.Errorf("%s %w", flagName("smtp"), err)
	}
	return required(setting{flag: "public-url", env: "LIKEWISE_PUBLIC_URL", value: publicURL, unless: forMail})
}

const forMail = ", which --smtp needs"

// mailFlags configure the mailer.
type mailFlags struct {
	smtpFlag
	secretKeyFlag
	MailFrom string `env:"LIKEWISE_MAIL_FROM" placeholder:"ADDRESS" help:"${mail_from_help}"`
}

// secretKeyFlag is the key of the site, which makes the tokens of links and seals the seeds of second factors.
type secretKeyFlag struct {
	SecretKeyFile string `env:"LIKEWISE_SECRET_KEY_FILE" placeholder:"FILE" help:"${secret_key_help}"`
}

// checkKey returns an error for a key that cannot be used. A site may have none.
func (f secretKeyFlag) checkKey() error {
	if f.SecretKeyFile == "" {
		return nil
	}
	_, err := f.key()
	return err
}

// checkMail returns an error for missing and invalid values. It reads the key, but connects to nothing.
func (f mailFlags) checkMail(publicURL string) error {
	if f.SMTP == "" {
		return nil
	}
	if err := errors.Join(f.check(publicURL), required(
		setting{flag: "mail-from", env: "LIKEWISE_MAIL_FROM", value: f.MailFrom, unless: forMail},
		setting{flag: "secret-key-file", env: "LIKEWISE_SECRET_KEY_FILE", value: f.SecretKeyFile, unless: forMail},
	)); err != nil {
		return err
	}
	if err := mail.CheckFrom(f.MailFrom); err != nil {
		return fmt.Errorf("%s: %w", flagName("mail-from"), err)
	}
	if err := handlers.CheckPublicURL(publicURL); err != nil {
		return fmt.Errorf("%s: %w", flagName("public-url"), err)
	}
	_, err := f.key()
	return err
}

// The size of a key, in bytes. A file that is larger is not a key.
const (
	minKey = 32
	maxKey = 4096
)

// key returns the key of the site, which makes the tokens of links. Who knows it can use the links of all mails, so
// only the owner of its file, and a group that may read it, have access to the file. White space around the key does
// not count, because editors add it.
func (f secretKeyFlag) key() ([]byte, error) {
	fault := func(what string) error {
		return fmt.Errorf("%s: %s %s", flagName("secret-key-file"), f.SecretKeyFile, what)
	}
	info, err := os.Stat(f.SecretKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flagName("secret-key-file"), err)
	}
	switch {
	case !info.Mode().IsRegular():
		return nil, fault("is not a file")
	case info.Mode().Perm()&0o027 != 0:
		return nil, fault(fmt.Sprintf("has the mode %04o, and others can read it or its group can write it: set 0600",
			info.Mode().Perm()))
	case info.Size() > maxKey:
		return nil, fault("is too large for a key")
	}
	text, err := os.ReadFile(f.SecretKeyFile)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", flagName("secret-key-file"), err)
	}
	if text = bytes.TrimSpace(text); len(text) < minKey {
		return nil, fault(fmt.Sprintf("has fewer than %d bytes: write one with openssl rand -hex 32", minKey))
	}
	return text, nil
}

// mailer returns the mailer of a process; nil if mail is off.
func (f mailFlags) mailer(c *core, publicURL string) (*workers.Mailer, error) {
	if f.SMTP == "" {
		return nil, nil
	}
	key, err := f.key()
	if err != nil {
		return nil, err
	}
	sender, err := mail.Open(mail.Config{SMTP: f.SMTP, From: f.MailFrom, PublicURL: publicURL})
	if err != nil {
		return nil, err
	}
	return workers.NewMailer(workers.MailerConfig{
		Store: accounts.New(c.store), Sender: sender, Key: key, Now: c.store.Now, Logger: c.log, Registry: c.registry,
	}), nil
}
