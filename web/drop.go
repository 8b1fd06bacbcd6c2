package web

import (
	"fmt"
	"net/http"
	"strconv"
	"time"
)

type dropPage struct {
	view

	PostID  int64
	Subject string
	Stock   string
	Ends    string // of a datetime-local field, in UTC
	Confirm string // minutes
	Key     string
	Problem *problem
}

func (v *visit) newDrop() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.load(v.fetch(at("posts", id), nil)); err != nil {
		return err
	}
	p := &dropPage{PostID: id, Key: newKey()}
	p.Title = "Offer limited stock"
	v.render(http.StatusOK, "drop_form", p)
	return nil
}

func (v *visit) createDrop() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	p := &dropPage{
		PostID: id, Subject: v.r.FormValue("title"), Stock: v.r.FormValue("stock"), Ends: v.r.FormValue("ends_at"),
		Confirm: v.r.FormValue("confirm_within"), Key: v.r.FormValue("key"),
	}
	p.Title = "Offer limited stock"
	body := map[string]any{"title": p.Subject}
	var wrong []fieldError
	stock, err := strconv.ParseInt(p.Stock, 10, 64)
	if body["stock"] = stock; err != nil {
		wrong = append(wrong, fieldError{"stock", "wrong_type", "must be a whole number"})
	}
	if p.Ends != "" {
		ends, err := time.Parse("2006-01-02T15:04", p.Ends)
		if body["ends_at"] = ends.Format(time.RFC3339); err != nil {
			wrong = append(wrong, fieldError{"ends_at", "bad_format", "must be a date with a time"})
		}
	}
	if p.Confirm != "" {
		minutes, err := strconv.ParseInt(p.Confirm, 10, 64)
		if body["confirm_within"] = minutes * 60; err != nil {
			wrong = append(wrong, fieldError{"confirm_within", "wrong_type", "must be a whole number"})
		}
	}
	if len(wrong) > 0 {
		err = &problem{Status: http.StatusUnprocessableEntity, Code: "invalid", Errors: wrong,
			Detail: "Some fields are not right."}
	} else {
		err = v.send(http.MethodPost, at("posts", id, "drops"), body, nil, "Idempotency-Key", p.Key)
	}
	if err == nil {
		return v.redirect(fmt.Sprintf("/posts/%d", id))
	}
	if expired(err) {
		return err
	}
	p.Problem = problemOf(err)
	p.Key = keyAfter(p.Key, p.Problem)
	v.again(p.Problem)
	v.render(p.Problem.Status, "drop_form", p)
	return nil
}

// claim claims one of a drop's stock. A second click gets the same claim.
func (v *visit) claim() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.send(http.MethodPost, at("drops", id, "claims"), nil, nil); err != nil {
		return err
	}
	return v.redirect(v.back("/claims"))
}

func (v *visit) closeDrop() error {
	id, err := v.pathID()
	if err != nil {
		return err
	}
	if err := v.send(http.MethodPost, at("drops", id, "close"), nil, nil); err != nil {
		return err
	}
	return v.redirect(v.back("/"))
}

func (v *visit) confirmClaim() error { return v.settleClaim(http.MethodPost, "/confirm") }

func (v *visit) returnClaim() error { return v.settleClaim(http.MethodDelete, "") }

// settleClaim confirms or returns a claim.
func (v *visit) settleClaim(method, act string) error {
	if err := v.send(method, at("claims", v.r.PathValue("name"))+act, nil, nil); err != nil {
		return err
	}
	return v.redirect(v.back("/claims"))
}
