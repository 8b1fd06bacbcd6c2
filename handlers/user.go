package handlers

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/gofiber/fiber/v2"

	"likewise/handlers/admission"
	"likewise/handlers/pages"
	"likewise/models"
)

// userJSON is an account as its own user sees it.
type userJSON struct {
	ID       int64   `json:"id"`
	Username string  `json:"username"`
	Email    *string `json:"email"` // null if the account has none
	// Whether the user has shown that the address is theirs, and the address that waits for that.
	EmailVerified bool        `json:"email_verified"`
	PendingEmail  *string     `json:"pending_email"`
	Role          string      `json:"role"`
	DisplayName   *string     `json:"display_name"` // null: the username is displayed
	Bio           string      `json:"bio"`
	AvatarURL     shownAvatar `json:"avatar_url"`
	CreatedAt     time.Time   `json:"created_at"`
}

func (s *Server) newUserJSON(u *models.User) userJSON {
	out := userJSON{
		ID: u.ID, Username: u.Username, Role: u.Role.String(), DisplayName: u.DisplayName, Bio: u.Bio,
		AvatarURL: s.avatarHosts.show(u.AvatarURL), CreatedAt: u.CreatedAt,
		EmailVerified: u.EmailVerifiedAt != nil, PendingEmail: u.PendingEmail,
	}
	if !strings.HasSuffix(u.Email, models.NoEmailDomain) {
		out.Email = &u.Email
	}
	return out
}

// meJSON is the account with what every page shows of it.
type meJSON struct {
	userJSON

	UnreadNotificationsCount int64 `json:"unread_notifications_count"` // models.MaxUnread means that many or more
}

type sessionJSON struct {
	User  userJSON `json:"user"`
	Token string   `json:"token"`
}

func (s *Server) register(c *fiber.Ctx) error {
	if s.registration == RegistrationClosed {
		return models.Errorf(models.CodeClosed, "This site does not accept registrations.")
	}
	var in models.Registration
	err := decode(c, fields{
		"username": lineOf{&in.Username}, "email": lineOf{&in.Email}, "password": &in.Password,
	})
	if err != nil {
		return err
	}
	if err := in.Validate(); err != nil {
		return err
	}
	if err := s.reserved.Check(in.Username); err != nil {
		return err
	}
	if err := s.rates.Take(c.UserContext(), s.client(c), admission.RegisterQuota); err != nil {
		return err
	}
	hash, err := s.passwords.Hash(c.UserContext(), in.Password)
	if err != nil {
		return err
	}
	user := &models.User{Username: in.Username, Email: in.Email, PasswordHash: hash}
	if s.registration == RegistrationVerified {
		return s.requestRegistration(c, user)
	}
	token, err := s.accounts.Register(c.UserContext(), user, userAgent(c), s.mail)
	if err != nil {
		return err
	}
	return s.replyRegistered(c, user, token)
}

// requestRegistration sends a mail to the address of a registration. An address that is known gets another mail, and
// the same answer. A name that is taken is refused, because names are public.
func (s *Server) requestRegistration(c *fiber.Ctx, user *models.User) error {
	if err := s.takeMail(c, user.Email); err != nil {
		return err
	}
	if err := s.accounts.FreeUsername(c.UserContext(), user.Username); err != nil {
		return err
	}
	if err := s.accounts.RequestRegistration(c.UserContext(), user); err != nil {
		return err
	}
	return replyMailed(c)
}

func (s *Server) replyRegistered(c *fiber.Ctx, user *models.User, token string) error {
	c.Set(fiber.HeaderLocation, "/v1/me")
	return c.Status(http.StatusCreated).JSON(sessionJSON{s.newUserJSON(user), token})
}

// userAgent returns the User-Agent of the request, in Fiber's memory.
func userAgent(c *fiber.Ctx) string { return c.Get(fiber.HeaderUserAgent) }

func (s *Server) login(c *fiber.Ctx) error {
	var name, password string
	if err := decode(c, fields{"login": &name, "password": &password}); err != nil {
		return err
	}
	user, token, err := s.openSession(c, name, password)
	if err != nil {
		return err
	}
	return c.JSON(sessionJSON{s.newUserJSON(user), token})
}

// openSession checks a login and a password, and opens a session. An unknown login costs the same time and returns the
// same error as a wrong password.
func (s *Server) openSession(c *fiber.Ctx, name, password string) (*models.User, string, error) {
	user, err := s.accounts.UserByLogin(c.UserContext(), name)
	if models.ErrorCode(err) == models.CodeNotFound {
		user, err = &models.User{}, nil // takes the same path, at the same cost
	}
	if err != nil {
		return nil, "", err
	}
	attempt, err := s.rates.Login(c.UserContext(), s.client(c), user.ID, name)
	if err != nil {
		return nil, "", err
	}
	target := user.ID
	if attempt.Blocked {
		user = &models.User{}
	}
	ok, err := s.passwords.Match(c.UserContext(), password, user.PasswordHash)
	if err != nil {
		return nil, "", err
	}
	if !ok {
		if err := s.accounts.LogFailedLogin(c.UserContext(), target, name); err != nil {
			s.log.Warn("failed login not logged", "request_id", requestID(c), "error", err)
		}
		return nil, "", models.Errorf(models.CodeUnauthorized, "The login or the password is wrong.")
	}
	s.rates.LoggedIn(c.UserContext(), attempt)
	token, err := s.accounts.Login(c.UserContext(), user, userAgent(c))
	return user, token, err
}

func (s *Server) me(c *fiber.Ctx) error {
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	unread, err := s.people.UnreadCount(c.UserContext(), user.ID)
	if err != nil {
		return err
	}
	return c.JSON(meJSON{s.newUserJSON(user), unread})
}

// editMe changes the profile. Profiles have no version: only their user edits them, and the last edit wins.
func (s *Server) editMe(c *fiber.Ctx) error {
	var displayName, bio, avatarURL *string
	if err := decode(c, fields{"display_name": &displayName, "bio": &bio, "avatar_url": &avatarURL}); err != nil {
		return err
	}
	cleanOptional(models.CleanLine, displayName)
	cleanOptional(models.CleanLines, bio)
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	profile := models.Profile{DisplayName: valueOf(user.DisplayName), Bio: user.Bio, AvatarURL: valueOf(user.AvatarURL)}
	for field, value := range map[*string]*string{
		&profile.DisplayName: displayName, &profile.Bio: bio, &profile.AvatarURL: avatarURL,
	} {
		if value != nil {
			*field = *value
		}
	}
	if displayName != nil && user.Role < models.RoleModerator {
		if err := s.reserved.CheckDisplayName(profile.DisplayName); err != nil {
			return err
		}
	}
	if name := models.ImageAt(profile.AvatarURL, string(s.publicURL)); name != "" {
		profile.AvatarURL = models.ImagePath + name
	}
	if err := profile.Validate(); err != nil {
		return err
	}
	if avatarURL != nil {
		if err := s.avatarHosts.check(profile.AvatarURL); err != nil {
			return err
		}
	}
	if err := s.people.UpdateProfile(c.UserContext(), user.ID, profile); err != nil {
		return err
	}
	s.sessions.Refresh(sessionHash(c)) // the session holds the name, for new posts and comments
	if user, err = s.accounts.UserByID(c.UserContext(), user.ID); err != nil {
		return err
	}
	return c.JSON(s.newUserJSON(user))
}

// valueOf returns *p, and "" for nil.
func valueOf[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// checkPassword returns CodeForbidden unless password is that of user, the viewer's account. field is its name in the
// request.
func (s *Server) checkPassword(c *fiber.Ctx, user *models.User, field, password string) error {
	ok, err := s.passwords.Match(c.UserContext(), password, user.PasswordHash)
	if err != nil {
		return err
	}
	if !ok {
		if err := s.accounts.LogFailedPassword(c.UserContext(), user.ID); err != nil {
			s.log.Warn("failed password not logged", "request_id", requestID(c), "error", err)
		}
		return &models.Error{Code: models.CodeForbidden, Message: "The password is wrong.",
			Fields: []models.FieldError{
				models.Broken(models.FieldWrongPassword, "is not the password of this account").In(field),
			}}
	}
	return nil
}

// changePassword changes the password and ends all other sessions, which somebody else may have opened with the old
// one.
func (s *Server) changePassword(c *fiber.Ctx) error {
	var current, password string
	if err := decode(c, fields{"current_password": &current, "new_password": &password}); err != nil {
		return err
	}
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if err := user.ValidatePassword("new_password", password); err != nil {
		return err
	}
	if err := s.checkPassword(c, user, "current_password", current); err != nil {
		return err
	}
	hash, err := s.passwords.Hash(c.UserContext(), password)
	if err != nil {
		return err
	}
	ended, err := s.accounts.ChangePassword(c.UserContext(), user.ID, user.PasswordHash, hash, sessionHash(c))
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(http.StatusNoContent)
}

// changeUsername replaces the username. The former one goes on to lead to the account.
func (s *Server) changeUsername(c *fiber.Ctx) error {
	var name string
	if err := decode(c, fields{"username": lineOf{&name}}); err != nil {
		return err
	}
	if err := models.ValidateUsername("username", name); err != nil {
		return err
	}
	if err := s.reserved.Check(name); err != nil {
		return err
	}
	if err := s.accounts.ChangeUsername(c.UserContext(), viewerID(c), name); err != nil {
		return err
	}
	s.sessions.Refresh(sessionHash(c)) // the session holds the name, for new posts and comments
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	return c.JSON(s.newUserJSON(user))
}

// deleteMe turns the account into a placeholder. The password in the body is the proof that it is the user. The cron
// job "void" removes the likes of the user.
func (s *Server) deleteMe(c *fiber.Ctx) error {
	var password string
	if err := decode(c, fields{"password": &password}); err != nil {
		return err
	}
	user, err := s.accounts.UserByID(c.UserContext(), viewerID(c))
	if err != nil {
		return err
	}
	if err := s.checkPassword(c, user, "password", password); err != nil {
		return err
	}
	ended, err := s.privacy.DeleteUser(c.UserContext(), user.ID, user.PasswordHash)
	if err != nil {
		return err
	}
	s.sessions.Forget(ended...)
	return c.SendStatus(http.StatusNoContent)
}

// publicUserJSON is the public profile of a user.
type publicUserJSON struct {
	ID             int64       `json:"id"`
	Username       string      `json:"username"`
	DisplayName    *string     `json:"display_name"` // null: the username is displayed
	Bio            string      `json:"bio"`
	AvatarURL      shownAvatar `json:"avatar_url"`
	PostsCount     int64       `json:"posts_count"`
	CommentsCount  int64       `json:"comments_count"`
	FollowersCount int64       `json:"followers_count"`
	FollowingCount int64       `json:"following_count"`
	Followed       bool        `json:"followed"` // by the viewer
	Blocked        bool        `json:"blocked"`  // by the viewer
	CreatedAt      time.Time   `json:"created_at"`
	Can            userCanJSON `json:"can"`
}

// showUser shows a user to the viewer.
func (s *Server) showUser(c *fiber.Ctx, u *models.PublicUser) (publicUserJSON, error) {
	able, err := s.abilitiesOn(c, []int64{u.Author.ID}, nil)
	return publicUserJSON{
		ID: u.Author.ID, Username: u.Author.Username, DisplayName: u.Author.DisplayName, Bio: u.Bio,
		AvatarURL: s.avatarHosts.show(u.Author.AvatarURL), PostsCount: u.PostsCount, CommentsCount: u.CommentsCount,
		FollowersCount: u.FollowersCount, FollowingCount: u.FollowingCount,
		Followed: u.Followed, Blocked: u.Blocked, CreatedAt: u.CreatedAt, Can: able.user(u),
	}, err
}

// What a profile includes on request: the names of the words and of the members.
const (
	includePosts    = "posts"
	includeComments = "comments"
)

// includedList reads ?include= of a profile; "" for none.
func includedList(c *fiber.Ctx) (string, error) {
	if !c.Context().QueryArgs().Has("include") {
		return "", nil
	}
	return oneOf(c, "include", includePosts, includeComments)
}

// replyUser answers with a user, and with the list that is included.
func (s *Server) replyUser(c *fiber.Ctx, u *models.PublicUser, include string) error {
	out, err := s.showUser(c, u)
	if err != nil {
		return err
	}
	if include == "" {
		return c.JSON(out)
	}
	list, err := s.firstPageOf(c, u.Author.ID, include)
	if err != nil {
		return err
	}
	h := &pages.Halves{Rows: list.Rows, Examined: list.Examined}
	if err := (pages.Containing{Others: out, Name: include, Item: list}).AppendTo(h); err != nil {
		return err
	}
	return s.replyHalves(c, h)
}

// firstPageOf returns the first page of a list of a user, as its own path returns it without parameters.
func (s *Server) firstPageOf(c *fiber.Ctx, userID int64, list string) (*pages.Halves, error) {
	query := c.Context().QueryArgs()
	query.Reset() // the parameters are those of the profile
	if list == includeComments {
		return encodeList(s, c, s.commentsOf(c, userID))
	}
	query.Set("author", strconv.FormatInt(userID, 10))
	l, err := s.requestedPosts(c)
	if err != nil {
		return nil, err
	}
	h, _, _, err := s.firstHalves(c, l.readName(), l.shared,
		func(ctx context.Context, viewer int64) (*pages.Halves, error) { return s.readPosts(ctx, c, l, viewer) })
	return h, err
}

// existingUser reads the user's id in the path. It returns CodeNotFound if there is no such user.
func (s *Server) existingUser(c *fiber.Ctx) (int64, error) {
	id, err := pathID(c, "user")
	if err != nil {
		return 0, err
	}
	return id, s.accounts.UserExists(c.UserContext(), id)
}

func (s *Server) readUser(c *fiber.Ctx) error {
	id, err := pathID(c, "user")
	if err != nil {
		return err
	}
	include, err := includedList(c)
	if err != nil {
		return err
	}
	user, err := s.accounts.PublicUserByID(c.UserContext(), viewerID(c), id)
	if err != nil {
		return err
	}
	return s.replyUser(c, user, include)
}

func (s *Server) readUserByName(c *fiber.Ctx) error {
	include, err := includedList(c)
	if err != nil {
		return err
	}
	name := pathText(c, "name")
	user, err := s.accounts.PublicUserByName(c.UserContext(), viewerID(c), name)
	if models.ErrorCode(err) == models.CodeNotFound {
		return s.redirectFormer(c, name)
	}
	if err != nil {
		return err
	}
	return s.replyUser(c, user, include)
}

// redirectFormer leads from a former name to the present one. The redirection is temporary: the user may take the name
// back.
func (s *Server) redirectFormer(c *fiber.Ctx, name string) error {
	present, err := s.accounts.PresentUsername(c.UserContext(), name)
	if err != nil {
		return err
	}
	location := "/v1/users/by-name/" + url.PathEscape(present)
	if query := c.Context().QueryArgs().String(); query != "" {
		location += "?" + query
	}
	c.Set(fiber.HeaderLocation, location)
	c.Status(http.StatusTemporaryRedirect)
	return nil
}

const (
	defaultNames = 10
	maxNames     = 20
)

// completeUsername lists users whose names begin with the prefix in the path, in the order of their names.
func (s *Server) completeUsername(c *fiber.Ctx) error {
	n, err := numberOf(c, "limit", defaultNames, maxNames)
	if err != nil {
		return err
	}
	users, err := s.accounts.UsersByPrefix(c.UserContext(), viewerID(c), pathText(c, "prefix"), n)
	if err != nil {
		return err
	}
	out := namesJSON{Items: make([]authorJSON, len(users))}
	for i, user := range users {
		out.Items[i] = s.author(user)
	}
	return c.JSON(out)
}

type namesJSON struct {
	Items []authorJSON `json:"items"`
}

// findUsers returns the user who has, or had, a name, as a list of one or none: a text may mention an unknown name.
func (s *Server) findUsers(c *fiber.Ctx) error {
	name := c.Query("username")
	if name == "" {
		return models.Invalid("username", models.Missing().Saying("must be the name of a user"))
	}
	out := pages.List[publicUserJSON]{Items: []publicUserJSON{}}
	user, err := s.userNamed(c, name)
	switch {
	case err == nil:
		item, err := s.showUser(c, user)
		if err != nil {
			return err
		}
		out.Items = append(out.Items, item)
	case models.ErrorCode(err) != models.CodeNotFound:
		return err
	}
	return c.JSON(out)
}

// userNamed returns the user who has a name, or else the one who had it.
func (s *Server) userNamed(c *fiber.Ctx, name string) (*models.PublicUser, error) {
	user, err := s.accounts.PublicUserByName(c.UserContext(), viewerID(c), name)
	if models.ErrorCode(err) != models.CodeNotFound {
		return user, err
	}
	if name, err = s.accounts.PresentUsername(c.UserContext(), name); err != nil {
		return nil, err
	}
	return s.accounts.PublicUserByName(c.UserContext(), viewerID(c), name)
}

// listUserPosts is listPosts with the author in the path.
func (s *Server) listUserPosts(c *fiber.Ctx) error {
	id, err := s.existingUser(c)
	if err != nil {
		return err
	}
	c.Context().QueryArgs().Set("author", strconv.FormatInt(id, 10))
	return s.listPosts(c)
}
