package handlers

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"likewise/models"
)

// avatarHosts lists the hosts that avatars may be on. A reader's browser loads an avatar from its host, which learns
// the reader's address. So a host must be listed; "*" alone allows every host.
type avatarHosts []string

// CheckAvatarHosts returns an error unless the list is "*" alone, or host names in lower case without scheme, port or
// path.
func CheckAvatarHosts(hosts []string) error {
	for _, host := range hosts {
		if host == "*" && len(hosts) == 1 {
			continue
		}
		u, err := url.Parse("https://" + host)
		_, isAddress := netip.ParseAddr(host)
		if err != nil || host == "" || u.Host != host || u.Port() != "" ||
			isAddress == nil || host != strings.ToLower(host) ||
			strings.ContainsAny(host, "*@:[] ") || strings.Trim(host, ".") != host {
			return fmt.Errorf("%q is neither the name of a host in lower case, such as images.example.org, "+
				`nor "*" alone for every host`, host)
		}
	}
	return nil
}

// allow reports whether an avatar at the address may be shown.
func (h avatarHosts) allow(address string) bool {
	if len(h) == 1 && h[0] == "*" || models.ImageAt(address, "") != "" {
		return true
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && (u.Port() == "" || u.Port() == "443") &&
		slices.Contains(h, strings.ToLower(u.Hostname()))
}

// check returns CodeInvalid for a new avatar_url on a host that is not allowed. An empty one removes the avatar.
func (h avatarHosts) check(address string) error {
	if address == "" || h.allow(address) {
		return nil
	}
	if len(h) == 0 {
		return models.Invalid("avatar_url", models.Broken(models.FieldNotPermitted,
			"cannot be set: this site does not show images from other hosts"))
	}
	return models.Invalid("avatar_url", models.Fault{Code: models.FieldBadHost,
		Params: models.Params{"allowed": []string(h)}, Message: "must be on one of the hosts " + strings.Join(h, ", ")})
}

// shownAvatar is an avatar_url that readers may load; nil means none. It is a type of its own so that no address gets
// into an answer unchecked.
type shownAvatar *string

// show returns an avatar on an allowed host, and nil otherwise.
func (h avatarHosts) show(address *string) shownAvatar {
	if address == nil || !h.allow(*address) {
		return nil
	}
	return address
}

// author returns the JSON of an author.
func (s *Server) author(a models.Author) authorJSON {
	return authorJSON{a.ID, a.Username, a.DisplayName, s.avatarHosts.show(a.AvatarURL)}
}
