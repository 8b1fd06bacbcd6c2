package main

import (
	"bytes"
	"context"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"likewise/models"
)

const (
	uploaders     = 10
	uploadsFor    = time.Minute
	quietFor      = 15 * time.Second
	uploadAddress = "127.0.8.1"
	apiMemory     = 1 << 30 // bytes, as in compose.yaml
	mostSlower    = 5       // times the latency of another client while nobody attacks
)

var uploads = scenario{
	"uploads",
	"ten accounts of one address upload the files that take most memory and work",
	siegeUploads,
}

// siegeUploads uploads for a minute, and reports the memory of the API, what another client notices, and whether the
// API works on after the last answer.
func siegeUploads(ctx context.Context, s *site, _ options) (figures []figure, err error) {
	files, err := worstPictures()
	if err != nil {
		return nil, err
	}
	var tokens []string
	for i := range uploaders {
		name := fmt.Sprintf("siege-uploader-%d", i)
		user := &models.User{Username: name, Email: name + models.NoEmailDomain}
		if err := s.store.CreateUser(ctx, user); err != nil {
			return nil, err
		}
		token, err := s.store.CreateSession(ctx, user.ID)
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	idle, err := s.probeFor(ctx, quietFor, s.data.small)
	if err != nil {
		return nil, err
	}
	attack, stop := context.WithTimeout(ctx, uploadsFor)
	defer stop()
	var answers sync.Map // by status: *atomic.Int64
	var all sync.WaitGroup
	for i, token := range tokens {
		all.Go(func() {
			client := &http.Client{Transport: &http.Transport{DialContext: s.dialer(uploadAddress)}}
			for n := i; attack.Err() == nil; n++ {
				status := s.upload(attack, client, token, files[n%len(files)])
				count, _ := answers.LoadOrStore(status, &atomic.Int64{})
				count.(*atomic.Int64).Add(1)
				if status != http.StatusCreated {
					select {
					case <-attack.Done():
					case <-time.After(100 * time.Millisecond):
					}
				}
			}
		})
	}
	during, refused, err := s.probe(attack, s.data.small)
	all.Wait()
	if err != nil {
		return nil, fmt.Errorf("the api did not stay up: %w", err)
	}
	after, err := s.worksFor(ctx, 2*time.Second)
	if err != nil {
		return nil, err
	}
	peak, err := s.peak()
	if err != nil {
		return nil, err
	}
	var statuses []string
	answers.Range(func(status, n any) bool {
		statuses = append(statuses, fmt.Sprintf("%d×%d", n.(*atomic.Int64).Load(), status))
		return true
	})
	return []figure{
		{"answers to uploads", strings.Join(statuses, ", "), true},
		{"peak memory", fmt.Sprintf("%d MiB", peak>>20), peak < apiMemory},
		{"other clients, refused", strconv.Itoa(refused), refused == 0},
		{
			"other clients, p99",
			fmt.Sprintf("%v, idle %v", during.p99(), idle.p99()),
			during.p99() < mostSlower*idle.p99(),
		},
		{"processor in 2 s after the last answer", after.String(), after < 500*time.Millisecond},
	}, nil
}

// worstPictures returns files of little data that are the largest ones that are accepted.
func worstPictures() ([][]byte, error) {
	var deep, photo bytes.Buffer
	if err := png.Encode(&deep, image.NewNRGBA64(image.Rect(0, 0, 5400, 5400))); err != nil {
		return nil, err
	}
	plain := image.NewYCbCr(image.Rect(0, 0, 6300, 6300), image.YCbCrSubsampleRatio420)
	for i := range plain.Y {
		plain.Y[i] = uint8(i % 251)
	}
	if err := jpeg.Encode(&photo, plain, &jpeg.Options{Quality: 30}); err != nil {
		return nil, err
	}
	return [][]byte{deep.Bytes(), photo.Bytes()}, nil
}

// upload returns the status of the answer; 0 if there was none.
func (s *site) upload(ctx context.Context, client *http.Client, token string, file []byte) int {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "picture")
	if err != nil {
		return 0
	}
	_, _ = part.Write(file) // a buffer returns no error
	_ = form.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+s.api+"/v1/images", &body)
	if err != nil {
		return 0
	}
	request.Header.Set("Authorization", "Bearer "+token)
	request.Header.Set("Content-Type", form.FormDataContentType())
	answer, err := client.Do(request)
	if err != nil {
		return 0
	}
	defer answer.Body.Close()
	_, _ = io.Copy(io.Discard, answer.Body) // the status is known
	return answer.StatusCode
}

// worksFor returns the processor time that the API takes in a while.
func (s *site) worksFor(ctx context.Context, length time.Duration) (time.Duration, error) {
	before, err := s.processor()
	if err != nil {
		return 0, err
	}
	select {
	case <-ctx.Done():
		return 0, ctx.Err()
	case <-time.After(length):
	}
	after, err := s.processor()
	return after - before, err
}

// processor returns the processor time of the API's process.
func (s *site) processor() (time.Duration, error) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", s.pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')'):]))
	const user, system, tick = 12, 13, 10 * time.Millisecond // after the name
	var all time.Duration
	for _, i := range []int{user, system} {
		n, err := strconv.ParseInt(fields[i], 10, 64)
		if err != nil {
			return 0, err
		}
		all += time.Duration(n) * tick
	}
	return all, nil
}
