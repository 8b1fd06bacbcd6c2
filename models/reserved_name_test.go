package models

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestReservedNames_includeTheirLookalikes(t *testing.T) {
	t.Parallel()
	reserved, err := NewReservedNames([]string{"Forum_Team"})
	assert.NoError(t, err)
	for _, name := range []string{
		"moderator", "administrator", "admin", "support", "system", "root", "deleted", "staff", "mod", "likewise",
		"Admin", "ADMIN", "adm1n", "4dmin", "admln", "ad.min", "a-d_m-i_n", "adrnin", "M0DERAT0R", "m0d", "r00t",
		"5upp0rt", "admin_", "forumteam", "F0rum-Team", "forurn.teAm",
	} {
		assert.Equal(t, CodeInvalid, ErrorCode(reserved.Check(name)), name)
	}
	for _, name := range []string{
		"ada", "adam", "admiral", "modest", "supporter1", "systema", "rooth", "rob0t", "teammate", "user1",
	} {
		assert.NoError(t, reserved.Check(name), name)
	}
	_, err = NewReservedNames([]string{"no name"})
	assert.Error(t, err)
}

func TestPasswords_areNotCommon(t *testing.T) {
	t.Parallel()
	registration := Registration{Username: "ada.lovelace", Email: "countess1815@example.org"}
	for _, password := range []string{
		"password", "12345678", "PASSWORD", "Password1", "password123", "passw0rd", "P@ssw0rd!", "qwertyuiop",
		"iloveyou1", "sunshine2026", "administrator", "1q2w3e4r", "00000000", "éééééééé",
		"ada.lovelace", "AdaLovelace", "ada_lovelace1815", "Ada Lovelace!", "countess", "Countess1815", "countess99",
		"countess1815@example.org",
	} {
		registration.Password = password
		assert.Equal(t, CodeInvalid, ErrorCode(registration.Validate()), password)
	}
	name := "Enchantress of Numbers"
	user := User{Username: "ada", Email: "ada@example.org", DisplayName: &name}
	for _, password := range []string{"ada12345", "ADA00000", "enchantressofnumbers", "Enchantress of Numbers 7"} {
		assert.Equal(t, CodeInvalid, ErrorCode(user.ValidatePassword("new_password", password)), password)
	}
	for _, password := range []string{
		"difference engine", "correct horse", "nanoseconds", "ada counts with engines", "7 engines of ada",
		"zRq8 vLp2", strings.Repeat("x9", 64),
	} {
		registration.Password = password
		assert.NoError(t, registration.Validate(), password)
		assert.NoError(t, user.ValidatePassword("new_password", password), password)
	}
	for range 100 {
		token, _ := NewToken() // the command line makes passwords so
		assert.NoError(t, user.ValidatePassword("new_password", token))
	}
	assert.Greater(t, len(commonPasswords()), 10_000)
}
