package models

import (
	"encoding/base64"
	"strings"
	"time"
)

// Image is a picture that a user has uploaded. Its bytes are in a storage of objects, under its name.
type Image struct {
	ID             int64 // of the row; the API names images by their names
	Name           string
	UserID         int64
	Type           string // of the image and its thumbnail, such as "image/jpeg"
	Width, Height  int    // of the image, in pixels
	Bytes          int64
	ThumbnailBytes int64
	CreatedAt      time.Time
	// Hidden is set while every post and comment of the user that uses the image is deleted. Only the user and
	// moderators can look at it. ImageByName and Images set Hidden.
	Hidden bool `gorm:"-"`
}

// Key returns the place of the image in a list.
func (i *Image) Key() ListKey { return ListKey{ID: i.ID} }

// ImageRoom bounds the bytes of images with their thumbnails: of one account, and of all of them together, until their
// objects are deleted.
type ImageRoom struct{ User, Site int64 }

// DefaultImageRoom is the ImageRoom of a site that sets none.
var DefaultImageRoom = ImageRoom{User: 200 << 20, Site: 20 << 30}

// ImagePath is the path of an image, without its name.
const ImagePath = "/v1/images/"

// ImageNameRandom is the number of random bytes in the name of an image.
const ImageNameRandom = 12

const maxImageSide = 1<<12 - 1

// ImageSize returns the size that the name of an image holds; ok is false if no image can have the name.
func ImageSize(name string) (width, height int, ok bool) {
	b, err := base64.RawURLEncoding.DecodeString(name)
	if err != nil || len(b) != ImageNameRandom+3 {
		return 0, 0, false
	}
	size := int(b[12])<<16 | int(b[13])<<8 | int(b[14])
	width, height = size>>12, size&maxImageSide
	return width, height, width > 0 && height > 0
}

// ImageAt returns the name of the image at an address: a path, or a URL of the site at base ("" for none). It returns
// "" for any other address.
func ImageAt(address, base string) string {
	if base != "" {
		address = strings.TrimPrefix(address, base)
	}
	name, ok := strings.CutPrefix(address, ImagePath)
	if !ok {
		return ""
	}
	if _, _, ok := ImageSize(name); !ok {
		return ""
	}
	return name
}

// ErrNoImage returns CodeNotFound for an image that does not exist, or that the viewer may not see.
func ErrNoImage() *Error { return Errorf(CodeNotFound, "The image does not exist.") }

// ImageUse is a post, comment or profile that keeps an image.
type ImageUse struct {
	Type string `gorm:"column:subject_type"` // "post", "comment" or "user"
	ID   int64  `gorm:"column:subject_id"`
}

// MaxImageUses is the maximum number of uses that ImageUses returns.
const MaxImageUses = 100

// StoredImage names the objects of an image.
type StoredImage struct {
	ID   int64
	Name string
}
