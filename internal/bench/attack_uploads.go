package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"image"
	"image/jpeg"
	"image/png"
	"io"
	"mime/multipart"
	"net/http"
	"strconv"
	"sync"
	"time"
)

const (
	uploaders     = 10
	uploadAddress = "127.0.8.1"
)

// measureUploads lets accounts of one address upload the files that take most memory and work. It measures the memory
// of the API, what another client notices, and whether the API works on after the last answer.
func (a *attacked) measureUploads(ctx context.Context, _ *Settings) ([]bounded, error) {
	files, err := worstPictures()
	if err != nil {
		return nil, err
	}
	var tokens []string
	for i := range uploaders {
		_, token, err := newUser(ctx, a.store, fmt.Sprintf("attacked-uploader-%d", i))
		if err != nil {
			return nil, err
		}
		tokens = append(tokens, token)
	}
	idle, err := a.probeAlone(ctx, a.quietUploads)
	if err != nil {
		return nil, err
	}
	attack, stop := context.WithTimeout(ctx, a.uploads)
	defer stop()
	var answers tally
	var all sync.WaitGroup
	for i, token := range tokens {
		all.Go(func() {
			client := a.client(uploadAddress)
			for n := i; attack.Err() == nil; n++ {
				status := a.upload(attack, client, token, files[n%len(files)])
				answers.add(strconv.Itoa(status))
				if status != http.StatusCreated {
					pause(attack, 100*time.Millisecond)
				}
			}
		})
	}
	during, err := a.probe(attack)
	all.Wait()
	if err != nil {
		return nil, fmt.Errorf("the api did not stay up: %w", err)
	}
	const rest = 2 * time.Second
	after, err := a.worksFor(ctx, rest)
	if err != nil {
		return nil, err
	}
	peak, err := a.peak()
	if err != nil {
		return nil, err
	}
	return []bounded{
		{Name: "answers to uploads", Within: true, Text: answers.String()},
		{Name: "peak memory", Within: peak < apiMemory, Text: fmt.Sprintf("%d MiB", peak>>20)},
		{Name: "other clients, refused", Within: during.refused == 0, Text: strconv.Itoa(during.refused)},
		{
			Name: "other clients, p99", Within: during.P99 < maxSlower*idle.P99,
			Text: fmt.Sprintf("%.1f ms, idle %.1f ms", during.P99, idle.P99),
		},
		{
			Name:   fmt.Sprintf("processor in %v after the last answer", rest),
			Within: after < 500*time.Millisecond, Text: after.String(),
		},
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
func (a *attacked) upload(ctx context.Context, client *http.Client, token string, file []byte) int {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	part, err := form.CreateFormFile("file", "picture")
	if err != nil {
		return 0
	}
	_, _ = part.Write(file) // a buffer returns no error
	_ = form.Close()
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+a.Address+"/v1/images", &body)
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
func (a *attacked) worksFor(ctx context.Context, length time.Duration) (time.Duration, error) {
	before, err := processorTime(a.Pid())
	if err != nil {
		return 0, err
	}
	pause(ctx, length)
	after, err := processorTime(a.Pid())
	return after - before, errors.Join(err, ctx.Err())
}

// peak returns the largest resident memory that the API's process has had, in bytes.
func (a *attacked) peak() (uint64, error) {
	process, err := a.process()
	if err != nil {
		return 0, err
	}
	status, err := process.NewStatus()
	return status.VmHWM, err
}
