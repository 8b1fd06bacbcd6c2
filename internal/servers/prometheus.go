package servers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
)

// Prometheus is a private Prometheus.
type Prometheus struct{ *Server }

// StartPrometheus starts the program of Prometheus, which scripts/install-prometheus.sh installs, in dir. config is the
// content of its configuration file.
func StartPrometheus(ctx context.Context, path, dir, config string) (*Prometheus, error) {
	s, err := start(ctx, program{
		name:  "prometheus",
		ports: 1,
		prepare: func(_ context.Context, s *Server) error {
			return os.WriteFile(s.file("prometheus.yml"), []byte(config), 0o600)
		},
		command: func(s *Server) (*exec.Cmd, error) {
			cmd := exec.Command(path, "--config.file="+s.file("prometheus.yml"), "--storage.tsdb.path="+s.file("data"),
				"--web.listen-address="+s.Addr(), "--log.level=warn")
			cmd.Env = environment()
			return cmd, nil
		},
		probe: probePrometheus,
	}, dir)
	if err != nil {
		return nil, err
	}
	return &Prometheus{s}, nil
}

// URL returns the address of its API.
func (p *Prometheus) URL() string { return "http://" + p.Addr() }

func probePrometheus(ctx context.Context, s *Server) error {
	var flags struct{ Data map[string]string }
	for _, path := range []string{"/-/ready", "/api/v1/status/flags"} {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+s.Addr()+path, nil)
		if err != nil {
			return err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return err
		}
		defer answer.Body.Close()
		if answer.StatusCode != http.StatusOK {
			return fmt.Errorf("prometheus answers %s", answer.Status)
		}
		if path != "/-/ready" {
			if err := json.NewDecoder(answer.Body).Decode(&flags); err != nil {
				return fmt.Errorf("flags of prometheus: %w", err)
			}
		}
	}
	if flags.Data["storage.tsdb.path"] != s.file("data") {
		return errors.New("another prometheus has the port")
	}
	return nil
}
