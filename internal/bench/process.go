package bench

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/procfs"

	"likewise/internal/servers"
)

// allocations are what a process has allocated since its start.
type allocations struct{ objects, bytes float64 }

// allocated reads runtime.MemStats from the metrics of a process.
func allocated(ctx context.Context, p *servers.Product) (a allocations, err error) {
	body, err := p.Ask(ctx, "/metrics")
	if err != nil {
		return a, err
	}
	defer body.Close()
	found := 0
	for lines := bufio.NewScanner(body); lines.Scan(); {
		name, value, _ := strings.Cut(lines.Text(), " ")
		into := map[string]*float64{
			"go_memstats_mallocs_total": &a.objects, "go_memstats_alloc_bytes_total": &a.bytes,
		}[name]
		if into == nil {
			continue
		}
		if *into, err = strconv.ParseFloat(value, 64); err != nil {
			return a, fmt.Errorf("metric %s: %w", name, err)
		}
		found++
	}
	if found != 2 {
		return a, fmt.Errorf("%s exports %d of 2 metrics of its memory", p.Name, found)
	}
	return a, nil
}

// The processes whose processor time is measured. The API is the one that a scenario uses.
const (
	roleAPI     = "api"
	roleWorker  = "worker"
	roleClients = "clients"
	roleMySQL   = "mysql"
	roleRedis   = "redis"
	roleKafka   = "kafka"
)

// used returns the processor time that each role has used since it was started.
func (b *bench) used(api *servers.Product) (map[string]time.Duration, error) {
	used := map[string]time.Duration{}
	for role, pid := range map[string]int{
		roleClients: os.Getpid(),
		roleAPI:     api.Pid(),
		roleWorker:  b.worker.Pid(),
		roleMySQL:   b.all.MySQL.Pid(),
		roleRedis:   b.all.Redis.Pid(),
		roleKafka:   b.all.Kafka.Pid(),
	} {
		var err error
		if used[role], err = processorTime(pid); err != nil {
			return nil, fmt.Errorf("%s: %w", role, err)
		}
	}
	return used, nil
}

// processorTime returns the processor time that a process has used since it was started.
func processorTime(pid int) (time.Duration, error) {
	process, err := procfs.NewProc(pid)
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	stat, err := process.Stat()
	if err != nil {
		return 0, fmt.Errorf("processor time: %w", err)
	}
	return time.Duration(stat.CPUTime() * float64(time.Second)), nil
}
