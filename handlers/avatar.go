package handlers

import (
	"fmt"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"likewise/models"
)

// avatarHosts are the hosts whose pictures readers load. A reader's browser asks the host of an avatar for the picture, so
// that host learns the reader's address: no host is taken unless it is named. "*" alone means every host.
type avatarHosts []string

// CheckAvatarHosts refuses a list that is neither "*" alone nor names of hosts in lower case, without scheme, port or path.
func CheckAvatarHosts(hosts []string) error {
	for _, host := range hosts {
		if host == "*" && len(hosts) == 1 {
			continue
		}
		u, err := url.Parse("https://" + host)
		_, isAddress := netip.ParseAddr(host)
		if err != nil || host == "" || u.Host != host || u.Port() != "" || isAddress == nil || host != strings.ToLower(host) ||
			strings.ContainsAny(host, "*@:[] ") || strings.Trim(host, ".") != host {
			return fmt.Errorf(`%q is not the name of a host, such as images.example.org in lower case, nor "*" alone for every host`, host)
		}
	}
	return nil
}

// allow reports whether the picture at the address may be shown.
func (h avatarHosts) allow(address string) bool {
	if len(h) == 1 && h[0] == "*" {
		return true
	}
	u, err := url.Parse(address)
	return err == nil && u.Scheme == "https" && (u.Port() == "" || u.Port() == "443") && slices.Contains(h, strings.ToLower(u.Hostname()))
}

// check holds a new avatar_url to the hosts (CodeInvalid). The empty one takes the picture away.
func (h avatarHosts) check(address string) error {
	if address == "" || h.allow(address) {
		return nil
	}
	if len(h) == 0 {
		return models.Invalid("avatar_url", "cannot be set: this site shows no pictures of other hosts")
	}
	return models.Invalid("avatar_url", "must be at one of the hosts "+strings.Join(h, ", "))
}

// shownAvatar is an avatar_url that readers may load; nil: none. It is a type of its own so that what MySQL has does not
// get into an answer unchecked.
type shownAvatar *string

// show hides an avatar of a host that is not allowed, or no longer.
func (h avatarHosts) show(address *string) shownAvatar {
	if address == nil || !h.allow(*address) {
		return nil
	}
	return address
}

// author is a user as the author of something.
func (s *Server) author(a models.Author) authorJSON {
	return authorJSON{a.ID, a.Username, a.DisplayName, s.avatarHosts.show(a.AvatarURL)}
}
