package mail

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/textproto"
	"slices"
	"strings"
)

// Step is what Send was doing when it failed.
type Step string

// The steps of sending a mail.
const (
	StepCompose   Step = "compose"
	StepConnect   Step = "connect" // with TLS and the sign-in
	StepSender    Step = "MAIL FROM"
	StepRecipient Step = "RCPT TO"
	StepContent   Step = "DATA"
)

// Error is the error of Send.
type Error struct {
	Step Step
	Code int // of the server's answer; 0 if it did not answer

	permanent     bool
	misconfigured bool
	cause         error
	hidden        []string
}

// Error returns the step and the answer of the server. It does not contain what is hidden.
func (e *Error) Error() string {
	text := e.cause.Error()
	if answer, ok := errors.AsType[*textproto.Error](e.cause); ok {
		text = fmt.Sprintf("%d %s", answer.Code, answer.Msg)
	}
	text = strings.Join(strings.Fields(text), " ") // an answer may have several lines
	for _, secret := range e.hidden {
		text = strings.ReplaceAll(text, secret, "…")
	}
	const limit = 300 // of an answer
	if runes := []rune(text); len(runes) > limit {
		text = string(runes[:limit]) + "…"
	}
	return fmt.Sprintf("%s: %s", e.Step, text)
}

// hide keeps texts out of the error. A server may repeat what it was sent.
func (e *Error) hide(texts ...string) {
	e.hidden = slices.DeleteFunc(texts, func(s string) bool { return s == "" })
}

// Is reports whether the time was over, or the caller has canceled the context.
func (e *Error) Is(target error) bool {
	return (target == context.DeadlineExceeded || target == context.Canceled) && errors.Is(e.cause, target)
}

// Permanent reports whether the recipient can never receive a mail, as far as the server knows. It is false for
// everything that the operator can repair.
func Permanent(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.permanent
}

// Misconfigured reports whether the server refuses this site, whatever the recipient is: its certificate, its password,
// its address or its right to relay. Only the operator can repair that.
func Misconfigured(err error) bool {
	e, ok := errors.AsType[*Error](err)
	return ok && e.misconfigured
}

// failed returns the error of a step, classified by the answer of the server.
func failed(step Step, err error) *Error {
	e := &Error{Step: step, cause: err}
	answer, answered := errors.AsType[*textproto.Error](err)
	if answered {
		e.Code = answer.Code
	}
	switch {
	case step == StepConnect && !answered:
		e.misconfigured = !lost(err) // the certificate, or a method that the server does not offer
	case e.Code < 500 || e.Code > 599:
	case step == StepConnect || step == StepSender:
		e.misconfigured = true
	case aboutRecipient(answer):
		e.permanent = true
	default:
		e.misconfigured = true
	}
	return e
}

// lost reports whether the connection failed, as opposed to what was said on it.
func lost(err error) bool {
	var network net.Error
	return errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, net.ErrClosed) || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
}

// aboutRecipient reports whether a refusal is about the recipient. The same codes refuse to relay, or a content: then
// the enhanced code (RFC 3463) has another subject than the address (1) or the mailbox (2).
func aboutRecipient(answer *textproto.Error) bool {
	if !slices.Contains([]int{550, 551, 553, 554}, answer.Code) {
		return false
	}
	var class, subject, detail int
	if n, err := fmt.Sscanf(answer.Msg, "%d.%d.%d", &class, &subject, &detail); n < 3 || err != nil {
		return true
	}
	return class == 5 && subject <= 2
}
