package web

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/boombuler/barcode/qr"
)

// codePage asks for the code of a second factor, after the password.
type codePage struct {
	view

	Challenge string
	Next      string
	Kept      string
	Problem   *problem
}

// askCode goes on with a login that needs a code.
func (v *visit) askCode(p *codePage) error {
	p.Title, p.Here = "Sign in", "/"
	status := http.StatusUnauthorized
	if p.Problem != nil {
		status = p.Problem.Status
		v.again(p.Problem)
	}
	v.render(status, "code", p)
	return nil
}

func (v *visit) signInWithCode() error {
	p := &codePage{
		Challenge: v.r.FormValue("challenge"), Next: localPath(v.r.FormValue("next"), "/"), Kept: v.r.FormValue("kept"),
	}
	v.token = ""
	var s session
	err := v.send(http.MethodPost, "/v1/auth/challenge",
		map[string]any{"challenge": p.Challenge, "code": v.r.FormValue("code")}, &s)
	if err == nil {
		return v.signedIn(&s, p.Next, p.Kept)
	}
	if expired(err) { // the challenge, not a session
		again := &signPage{Next: p.Next, Kept: p.Kept, Problem: problemOf(err)}
		again.Title, again.Here = "Sign in", "/"
		v.render(again.Problem.Status, "sign_in", again)
		return nil
	}
	p.Problem = problemOf(err)
	return v.askCode(p)
}

// signedIn begins a session and shows what the visitor wanted.
func (v *visit) signedIn(s *session, next, kept string) error {
	v.beginSession(s.Token)
	v.me = &s.User
	if kept != "" {
		return v.showKept(kept)
	}
	return v.redirect(next)
}

// factorsPage is the page of second factors.
type factorsPage struct {
	view

	Factors factors
	Begun   *newTOTP
	Code    *qrCode
	Made    []string // recovery codes, which no later answer has
	Saved   bool
	Problem *problem
}

func (v *visit) factors() error {
	return v.showFactors(&factorsPage{Saved: v.r.URL.Query().Has("saved")})
}

func (v *visit) showFactors(p *factorsPage) error {
	if err := v.load(v.fetch("/v1/me/factors", &p.Factors)); err != nil && p.Made == nil {
		return formOr(p.Problem, err)
	}
	if p.Begun != nil {
		var err error
		if p.Code, err = newQRCode(p.Begun.URI); err != nil {
			return err
		}
	}
	p.Title = "Second factor"
	status := http.StatusOK
	if p.Problem != nil {
		status = p.Problem.Status
		v.again(p.Problem)
	}
	v.render(status, "factors", p)
	return nil
}

func (v *visit) beginTOTP() error {
	var begun newTOTP
	if err := v.send(http.MethodPost, "/v1/me/factors/totp", nil, &begun); err != nil {
		if expired(err) {
			return err
		}
		return v.showFactors(&factorsPage{Problem: problemOf(err)})
	}
	return v.showFactors(&factorsPage{Begun: &begun})
}

// confirmTOTP sends the first code. After a wrong one the page shows the secret again, which the form carries.
func (v *visit) confirmTOTP() error {
	var made recoveryCodes
	err := v.send(http.MethodPost, "/v1/me/factors/totp/confirm", map[string]any{"code": v.r.FormValue("code")}, &made)
	switch {
	case err == nil:
		return v.showFactors(&factorsPage{Made: made.RecoveryCodes})
	case expired(err):
		return err
	}
	p := &factorsPage{Problem: problemOf(err)}
	if uri := v.r.FormValue("uri"); p.Problem.Status == http.StatusForbidden && strings.HasPrefix(uri, "otpauth://") {
		p.Begun = &newTOTP{v.r.FormValue("secret"), uri}
	}
	return v.showFactors(p)
}

func (v *visit) replaceRecoveryCodes() error {
	var made recoveryCodes
	err := v.send(http.MethodPost, "/v1/me/factors/recovery-codes", nil, &made)
	switch {
	case err == nil:
		return v.showFactors(&factorsPage{Made: made.RecoveryCodes})
	case expired(err):
		return err
	}
	return v.showFactors(&factorsPage{Problem: problemOf(err)})
}

func (v *visit) removeTOTP() error {
	if v.r.FormValue("sure") == "" {
		return v.ask("Sign in without a second factor from now on?", "Remove the app", "/settings/factors")
	}
	if err := v.send(http.MethodDelete, "/v1/me/factors/totp", nil, nil); err != nil {
		return err
	}
	return v.redirect("/settings/factors?saved")
}

// qrCode is a QR code as a path of SVG, one unit a module, with the quiet zone that scanners need.
type qrCode struct {
	Size int
	Path string
}

func newQRCode(text string) (*qrCode, error) {
	const quiet = 4
	code, err := qr.Encode(text, qr.M, qr.Auto)
	if err != nil {
		return nil, fmt.Errorf("make QR code: %w", err)
	}
	bounds := code.Bounds()
	var path strings.Builder
	for y := bounds.Min.Y; y < bounds.Max.Y; y++ {
		for x := bounds.Min.X; x < bounds.Max.X; x++ {
			if r, _, _, _ := code.At(x, y).RGBA(); r == 0 {
				fmt.Fprintf(&path, "M%d %dh1v1h-1z", x+quiet, y+quiet)
			}
		}
	}
	return &qrCode{bounds.Dx() + 2*quiet, path.String()}, nil
}
