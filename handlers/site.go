package handlers

import (
	"github.com/gofiber/fiber/v2"

	"likewise/images"
	"likewise/models"
	"likewise/models/search"
)

// siteJSON is what a front end needs to know before it shows its first page.
type siteJSON struct {
	Name          string       `json:"name"`
	PublicURL     *string      `json:"public_url"` // null: the operator has set none
	Limits        limitsJSON   `json:"limits"`
	ReportReasons []reasonJSON `json:"report_reasons"`
	AvatarHosts   []string     `json:"avatar_hosts"` // "*" alone allows every host
	Features      featuresJSON `json:"features"`
}

// limitJSON is what a field of a request may have, from Min to Max units.
type limitJSON struct {
	Min  int64  `json:"min"`
	Max  int64  `json:"max"`
	Unit string `json:"unit"`
}

func characters(low, high int64) limitJSON { return limitJSON{low, high, "characters"} }

func bytesOf(low, high int64) limitJSON { return limitJSON{low, high, "bytes"} }

func items(low, high int64) limitJSON { return limitJSON{low, high, "items"} }

type limitsJSON struct {
	Username    limitJSON `json:"username"`
	Email       limitJSON `json:"email"`
	Password    limitJSON `json:"password"`
	DisplayName limitJSON `json:"display_name"`
	Bio         limitJSON `json:"bio"`
	AvatarURL   limitJSON `json:"avatar_url"`

	Title        limitJSON `json:"title"`
	Post         limitJSON `json:"post"`
	Comment      limitJSON `json:"comment"`
	CommentDepth limitJSON `json:"comment_depth"`
	Tags         limitJSON `json:"tags"` // of a post
	Tag          limitJSON `json:"tag"`
	Image        limitJSON `json:"image"`
	ImagePixels  limitJSON `json:"image_pixels"` // width times height
	Drops        limitJSON `json:"drops"`        // of a post
	DropStock    limitJSON `json:"drop_stock"`

	Search           limitJSON `json:"search"`
	Page             limitJSON `json:"page"` // of a list: ?limit=
	ReportDetail     limitJSON `json:"report_detail"`
	ModerationReason limitJSON `json:"moderation_reason"`
	Drafts           limitJSON `json:"drafts"` // of an account
	Follows          limitJSON `json:"follows"`
	Tokens           limitJSON `json:"tokens"`
	TokenName        limitJSON `json:"token_name"`
	TokenDays        limitJSON `json:"token_days"`
}

type reasonJSON struct {
	Reason string `json:"reason"`
	Name   string `json:"name"`
}

// featuresJSON is what is switched on.
type featuresJSON struct {
	Registration  string `json:"registration"`
	Images        bool   `json:"images"`
	Feeds         bool   `json:"feeds"` // and the sitemap
	Mail          bool   `json:"mail"`
	PasswordReset bool   `json:"password_reset"`
	SecondFactors bool   `json:"second_factors"`
}

// siteLimits are the constants that requests are checked against.
var siteLimits = limitsJSON{
	Username:    characters(models.MinUsername, models.MaxUsername),
	Email:       characters(1, models.MaxEmail),
	Password:    characters(models.MinPassword, models.MaxPassword),
	DisplayName: characters(0, models.MaxDisplayName),
	Bio:         characters(0, models.MaxBio),
	AvatarURL:   characters(0, models.MaxAvatarURL),

	Title:        characters(1, models.MaxTitle),
	Post:         bytesOf(1, models.MaxContent),
	Comment:      bytesOf(1, models.MaxContent),
	CommentDepth: limitJSON{0, models.MaxDepth, "levels"},
	Tags:         items(0, models.MaxTags),
	Tag:          characters(1, models.MaxTag),
	Image:        bytesOf(1, images.MaxBytes),
	ImagePixels:  limitJSON{1, images.MaxPixels, "pixels"},
	Drops:        items(0, models.MaxDrops),
	DropStock:    items(1, models.MaxStock),

	Search:           characters(1, search.MaxQuery),
	Page:             items(1, maxLimit),
	ReportDetail:     characters(0, models.MaxDetail),
	ModerationReason: characters(1, models.MaxReason),
	Drafts:           items(0, models.MaxDrafts),
	Follows:          items(0, models.MaxFollows),
	Tokens:           items(0, models.MaxTokens),
	TokenName:        characters(1, models.MaxTokenName),
	TokenDays:        limitJSON{1, models.MaxTokenDays, "days"},
}

// siteAge is for how long any cache may keep the answer, which changes only when the process starts again.
const siteAge = "public, max-age=60"

// readSite returns the settings of the site that clients need. It reads no server.
func (s *Server) readSite(c *fiber.Ctx) error {
	site := siteJSON{
		Name: s.siteName, Limits: siteLimits, AvatarHosts: append([]string{}, s.avatarHosts...),
		Features: featuresJSON{
			Registration: string(s.registration), Images: s.images != nil, Feeds: s.publicURL != "",
			Mail: s.mail, PasswordReset: s.mail, SecondFactors: s.seeds != nil,
		},
	}
	if s.publicURL != "" {
		site.PublicURL = new(string(s.publicURL))
	}
	for _, reason := range models.Reasons {
		site.ReportReasons = append(site.ReportReasons, reasonJSON{reason, models.ReasonName(reason)})
	}
	c.Set(fiber.HeaderCacheControl, siteAge)
	return c.JSON(site)
}
