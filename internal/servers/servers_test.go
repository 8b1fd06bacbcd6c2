package servers

import (
	"bufio"
	"bytes"
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/IBM/sarama"
	_ "github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/require"
)

// envParent makes the test program start the servers in the folder that it names, and wait to be killed. envOrphans
// makes it do so without the parent-death signal.
const (
	envParent  = "LIKEWISE_TEST_PARENT"
	envOrphans = "LIKEWISE_TEST_ORPHANS"
)

func TestMain(m *testing.M) {
	Main()
	if dir := os.Getenv(envParent); dir != "" {
		beParent(dir)
	}
	os.Exit(m.Run())
}

// kind has the functions that the tests need of each kind of server.
type kind struct {
	name  string
	start func(ctx context.Context, dir string) (*Server, error)
	// write stores a value, and returns once it is acknowledged. read returns all stored values, in order.
	write func(t *testing.T, s *Server, value string)
	read  func(t *testing.T, s *Server) []string
}

var kinds = []kind{
	{
		name: "mysql",
		start: func(ctx context.Context, dir string) (*Server, error) {
			m, err := StartMySQL(ctx, dir)
			if err != nil {
				return nil, err
			}
			return m.Server, nil
		},
		write: func(t *testing.T, s *Server, value string) {
			db := openMySQL(t, s)
			exec := func(query string, args ...any) {
				_, err := db.ExecContext(t.Context(), query, args...)
				require.NoError(t, err)
			}
			exec("CREATE DATABASE IF NOT EXISTS kept")
			exec("CREATE TABLE IF NOT EXISTS kept.list (id INT AUTO_INCREMENT PRIMARY KEY, value TEXT)")
			exec("INSERT INTO kept.list (value) VALUES (?)", value)
		},
		read: func(t *testing.T, s *Server) []string {
			rows, err := openMySQL(t, s).QueryContext(t.Context(), "SELECT value FROM kept.list ORDER BY id")
			require.NoError(t, err)
			defer rows.Close()
			var values []string
			for rows.Next() {
				var value string
				require.NoError(t, rows.Scan(&value))
				values = append(values, value)
			}
			require.NoError(t, rows.Err())
			return values
		},
	},
	{
		name: "redis",
		start: func(ctx context.Context, dir string) (*Server, error) {
			r, err := StartRedis(ctx, dir)
			if err != nil {
				return nil, err
			}
			return r.Server, nil
		},
		write: func(t *testing.T, s *Server, value string) {
			require.NoError(t, openRedis(t, s).RPush(t.Context(), "list", value).Err())
		},
		read: func(t *testing.T, s *Server) []string {
			values, err := openRedis(t, s).LRange(t.Context(), "list", 0, -1).Result()
			require.NoError(t, err)
			return values
		},
	},
	{
		name: "kafka",
		start: func(ctx context.Context, dir string) (*Server, error) {
			k, err := StartKafka(ctx, dir)
			if err != nil {
				return nil, err
			}
			return k.Server, nil
		},
		write: func(t *testing.T, s *Server, value string) {
			createTopic(t, s, "list")
			producer, err := sarama.NewSyncProducer([]string{s.Addr()}, kafkaConfig())
			require.NoError(t, err)
			defer producer.Close()
			_, _, err = producer.SendMessage(&sarama.ProducerMessage{Topic: "list", Value: sarama.StringEncoder(value)})
			require.NoError(t, err)
		},
		read: func(t *testing.T, s *Server) []string { return consumeAll(t, s, "list") },
	},
}

func openMySQL(t *testing.T, s *Server) *sql.DB {
	db, err := sql.Open("mysql", (&MySQL{s}).DSN(""))
	require.NoError(t, err)
	t.Cleanup(func() { db.Close() })
	return db
}

func openRedis(t *testing.T, s *Server) *redis.Client {
	opts, err := redis.ParseURL((&Redis{s}).URL())
	require.NoError(t, err)
	client := redis.NewClient(opts)
	t.Cleanup(func() { client.Close() })
	return client
}

func kafkaConfig() *sarama.Config {
	cfg := sarama.NewConfig()
	cfg.Version = sarama.V3_6_0_0
	cfg.Producer.RequiredAcks = sarama.WaitForAll
	cfg.Producer.Idempotent = true
	cfg.Producer.Return.Successes = true
	cfg.Net.MaxOpenRequests = 1
	cfg.Consumer.Offsets.Initial = sarama.OffsetOldest
	cfg.Consumer.Offsets.AutoCommit.Enable = false
	return cfg
}

func createTopic(t *testing.T, s *Server, topic string) {
	admin, err := sarama.NewClusterAdmin([]string{s.Addr()}, kafkaConfig())
	require.NoError(t, err)
	defer admin.Close()
	err = admin.CreateTopic(topic, &sarama.TopicDetail{NumPartitions: 1, ReplicationFactor: 1}, false)
	if err != nil && !errors.Is(err, sarama.ErrTopicAlreadyExists) {
		require.NoError(t, err)
	}
}

func consumeAll(t *testing.T, s *Server, topic string) []string {
	client, err := sarama.NewClient([]string{s.Addr()}, kafkaConfig())
	require.NoError(t, err)
	defer client.Close()
	end, err := client.GetOffset(topic, 0, sarama.OffsetNewest)
	require.NoError(t, err)
	consumer, err := sarama.NewConsumerFromClient(client)
	require.NoError(t, err)
	partition, err := consumer.ConsumePartition(topic, 0, sarama.OffsetOldest)
	require.NoError(t, err)
	defer partition.Close()
	var values []string
	for next := int64(0); next < end; {
		select {
		case m := <-partition.Messages():
			values = append(values, string(m.Value))
			next = m.Offset + 1
		case <-time.After(20 * time.Second):
			t.Fatalf("only %d of %d messages came", next, end)
		}
	}
	return values
}

func startKind(t *testing.T, k kind, dir string) *Server {
	t.Helper()
	begin := time.Now()
	s, err := k.start(t.Context(), dir)
	require.NoError(t, err)
	t.Logf("%s started in %v", s.program.name, time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	return s
}

func TestServer_keepsDataAndAddressAcrossStops(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			dir := t.TempDir()
			s := startKind(t, k, dir)
			addr := s.Addr()
			k.write(t, s, "one")

			begin := time.Now()
			require.NoError(t, s.Stop(t.Context()))
			t.Logf("stopped in %v", time.Since(begin).Round(time.Millisecond))
			<-s.Exited()
			require.NoError(t, s.Start(t.Context()))
			require.Equal(t, addr, s.Addr())
			k.write(t, s, "two")
			require.NoError(t, s.Stop(t.Context()))

			again := startKind(t, k, dir)
			require.Equal(t, addr, again.Addr())
			require.Equal(t, []string{"one", "two"}, k.read(t, again))
		})
	}
}

func TestServer_keepsWhatItAcknowledgedWhenKilled(t *testing.T) {
	t.Parallel()
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			s := startKind(t, k, t.TempDir())
			var want []string
			for i := range 3 {
				value := fmt.Sprint("round ", i)
				k.write(t, s, value)
				want = append(want, value)
				exited := s.Exited()
				require.NoError(t, s.Kill())
				<-exited
				begin := time.Now()
				require.NoError(t, s.Start(t.Context()))
				t.Logf("back after %v", time.Since(begin).Round(time.Millisecond))
				require.Equal(t, want, k.read(t, s))
			}
		})
	}
}

func TestKafka_keepsGroupOffsetsWhenKilled(t *testing.T) {
	t.Parallel()
	k := kinds[2]
	s := startKind(t, k, t.TempDir())
	for i := range 10 {
		k.write(t, s, fmt.Sprint(i))
	}

	commit := func(count int) (values []string) {
		group, err := sarama.NewConsumerGroup([]string{s.Addr()}, "readers", kafkaConfig())
		require.NoError(t, err)
		defer group.Close()
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		err = group.Consume(ctx, []string{"list"}, &readSome{count: count, values: &values})
		require.NoError(t, err)
		return values
	}
	require.Equal(t, []string{"0", "1", "2", "3"}, commit(4))
	require.NoError(t, s.Kill())
	require.NoError(t, s.Start(t.Context()))
	require.Equal(t, []string{"4", "5"}, commit(2))
}

// A member that dies while it waits to join is still assigned partitions. Its session must end, so that others read
// them. The test uses several groups, because without lingeringConn the broker expires the session in half of all
// cases.
func TestKafka_expiresMemberThatDiedWhileJoining(t *testing.T) {
	t.Parallel()
	k := kinds[2]
	s := startKind(t, k, t.TempDir())
	createTopic(t, s, "list")
	admin, err := sarama.NewClusterAdmin([]string{s.Addr()}, kafkaConfig())
	require.NoError(t, err)
	defer admin.Close()
	require.NoError(t, admin.CreatePartitions("list", 2, nil, false))
	t.Run("groups", func(t *testing.T) {
		for i := range 6 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				t.Parallel()
				expireDeadMember(t, s, admin, fmt.Sprint("readers", i))
			})
		}
	})
}

func expireDeadMember(t *testing.T, s *Server, admin sarama.ClusterAdmin, group string) {
	cfg := kafkaConfig()
	cfg.Consumer.Group.Session.Timeout, cfg.Consumer.Group.Heartbeat.Interval = 6*time.Second, 2*time.Second
	cfg.Consumer.Group.Rebalance.Timeout = 5 * time.Second
	living, err := sarama.NewConsumerGroup([]string{s.Addr()}, group, cfg)
	require.NoError(t, err)
	defer living.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	member := countClaims{make(chan int, 100)}
	go func() {
		for ctx.Err() == nil {
			_ = living.Consume(ctx, []string{"list"}, member) // a rebalance ends it, too
		}
	}()
	await := func(partitions int, why string) {
		t.Helper()
		for {
			select {
			case n := <-member.claims:
				if n == partitions {
					return
				}
			case <-ctx.Done():
				t.Fatal(why)
			}
		}
	}
	await(2, "the group does not start")

	var line lastDialed
	dying := kafkaConfig()
	dying.Net.Proxy.Enable, dying.Net.Proxy.Dialer = true, &line
	broker := sarama.NewBroker(s.Addr())
	require.NoError(t, broker.Open(dying))
	defer broker.Close()
	join := &sarama.JoinGroupRequest{
		Version:          4,
		GroupId:          group,
		ProtocolType:     "consumer",
		SessionTimeout:   6000,
		RebalanceTimeout: 5000,
	}
	require.NoError(t,
		join.AddGroupProtocolMetadata("range", &sarama.ConsumerGroupMemberMetadata{Topics: []string{"list"}}))
	reply, err := broker.JoinGroup(join)
	require.NoError(t, err)
	require.Equal(t, sarama.ErrMemberIdRequired, reply.Err)
	join.MemberId = reply.MemberId
	go func() { _, _ = broker.JoinGroup(join) }() // is not answered before the living one has joined again
	for members := 0; members != 2; {
		groups, err := admin.DescribeConsumerGroups([]string{group})
		require.NoError(t, err)
		require.NoError(t, ctx.Err())
		members = len(groups[0].Members)
	}
	require.NoError(t, line.Close())
	await(1, "the dead one does not join")
	await(2, "a partition stays with the dead")
}

// lastDialed is a dialer that keeps its last connection.
type lastDialed struct{ net.Conn }

func (l *lastDialed) Dial(network, address string) (net.Conn, error) {
	c, err := net.Dial(network, address)
	l.Conn = c
	return c, err
}

// countClaims sends the number of its partitions when it is assigned some, and 0 when it must release them.
type countClaims struct{ claims chan int }

func (c countClaims) Setup(session sarama.ConsumerGroupSession) error {
	c.claims <- len(session.Claims()["list"])
	return nil
}

func (c countClaims) Cleanup(sarama.ConsumerGroupSession) error {
	c.claims <- 0
	return nil
}

func (countClaims) ConsumeClaim(session sarama.ConsumerGroupSession, _ sarama.ConsumerGroupClaim) error {
	<-session.Context().Done()
	return nil
}

// readSome is a consumer that reads some messages, commits and leaves the group.
type readSome struct {
	count  int
	values *[]string
}

func (*readSome) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (*readSome) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (r *readSome) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m := <-claim.Messages():
			*r.values = append(*r.values, string(m.Value))
			session.MarkMessage(m, "")
			if len(*r.values) == r.count {
				session.Commit()
				return nil
			}
		case <-session.Context().Done():
			return nil
		}
	}
}

func TestServer_pausedDoesNotAnswerUntilResumed(t *testing.T) {
	t.Parallel()
	s := startKind(t, kinds[1], t.TempDir())
	client := redis.NewClient(&redis.Options{
		Addr: s.Addr(), MaxRetries: -1, ReadTimeout: 200 * time.Millisecond,
	})
	defer client.Close()
	require.NoError(t, client.Ping(t.Context()).Err())

	require.NoError(t, s.Pause())
	require.Error(t, client.Ping(t.Context()).Err())
	require.NoError(t, s.Resume())
	require.Eventually(t, func() bool { return client.Ping(t.Context()).Err() == nil }, 5*time.Second,
		10*time.Millisecond)

	require.NoError(t, s.Pause())
	require.NoError(t, s.Stop(t.Context()), "a paused server can be stopped")
}

// The threads of a process stop some time after the signal. When Pause returns, all of them have stopped.
func TestServer_hasStoppedWhenPauseReturns(t *testing.T) {
	t.Parallel()
	s := startKind(t, kinds[0], t.TempDir())
	for range 100 {
		require.NoError(t, s.Pause())
		threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/stat", s.Pid()))
		require.NoError(t, err)
		require.NotEmpty(t, threads)
		for _, thread := range threads {
			stat, err := os.ReadFile(thread)
			if errors.Is(err, os.ErrNotExist) || errors.Is(err, syscall.ESRCH) {
				continue // the thread was ending, which a stop does not hold up
			}
			require.NoError(t, err)
			state := stat[bytes.LastIndexByte(stat, ')')+2]
			require.Contains(t, "TXZ", string(state), "a thread of a paused server runs")
		}
		require.NoError(t, s.Resume())
	}
}

func TestServer_refusesSecondOwner(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startKind(t, kinds[1], dir)
	_, err := kinds[1].start(t.Context(), dir)
	require.ErrorContains(t, err, dir+" is in use by another process")
	require.ErrorContains(t, s.Start(t.Context()), "already running")

	require.NoError(t, s.Stop(t.Context()))
	startKind(t, kinds[1], dir)
}

// A process that is being started holds copies of all files of its parent, until it executes its program.
func TestServer_startsAgainWhileAnotherProcessIsForked(t *testing.T) {
	t.Parallel()
	s, err := StartRedis(t.Context(), t.TempDir())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Stop(context.Background())) })
	copied, err := syscall.Dup(int(s.lock.Fd()))
	require.NoError(t, err)
	defer syscall.Close(copied)
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, s.Start(t.Context()))
}

func TestMySQL_startKeepsTemporaryTablesOfOtherServers(t *testing.T) {
	t.Parallel()
	conn, err := openMySQL(t, startKind(t, kinds[0], t.TempDir())).Conn(t.Context())
	require.NoError(t, err)
	defer conn.Close()
	exec := func(query string) error {
		_, err := conn.ExecContext(t.Context(), query)
		return err
	}
	require.NoError(t, exec("CREATE DATABASE own"))
	require.NoError(t, exec("CREATE TEMPORARY TABLE own.list (id INT) ENGINE=MyISAM"))
	startKind(t, kinds[0], t.TempDir())
	require.NoError(t, exec("DROP TEMPORARY TABLE own.list"))
}

func TestServer_takesAnotherPortWhenItsOwnIsTaken(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	s := startKind(t, kinds[1], dir)
	kinds[1].write(t, s, "kept")
	require.NoError(t, s.Stop(t.Context()))
	require.NoError(t, os.Remove(filepath.Join(dir, "port")))
	intruder := startKind(t, kinds[1], t.TempDir())
	intruderPort, err := os.ReadFile(intruder.file("port"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "port"), intruderPort, 0o600))

	again := startKind(t, kinds[1], dir)
	require.NotEqual(t, intruder.Addr(), again.Addr())
	require.Equal(t, []string{"kept"}, kinds[1].read(t, again))
}

func TestStart_failureShowsTheServersLog(t *testing.T) {
	t.Parallel()
	_, err := StartRedis(t.Context(), t.TempDir(), "--no-such-setting", "1")
	require.ErrorContains(t, err, "ended before it was ready")
	require.ErrorContains(t, err, "no-such-setting")
}

func TestStart_namesThePackageToInstall(t *testing.T) {
	_, err := find("no-such-server", "apt-get install no-such-package")
	require.EqualError(t, err, `no-such-server not found: run "apt-get install no-such-package"`)

	t.Setenv("LIKEWISE_SERVERS_MYSQL", "chroot:/nowhere")
	_, err = StartMySQL(t.Context(), t.TempDir())
	require.ErrorContains(t, err, `no mysqld in /nowhere: run "scripts/install-mysql.sh /nowhere"`)

	t.Setenv("LIKEWISE_SERVERS_KAFKA", "apache:/nowhere")
	_, err = StartKafka(t.Context(), t.TempDir())
	require.ErrorContains(t, err, `no Apache Kafka in /nowhere: run "scripts/install-kafka.sh /nowhere"`)

	t.Setenv("LIKEWISE_SERVERS_KAFKA", "/nowhere")
	_, err = StartKafka(t.Context(), t.TempDir())
	require.ErrorContains(t, err, `LIKEWISE_SERVERS_KAFKA is "/nowhere", not apache:DIR`)
}

// started is the parent's report about the servers that it started.
type started struct {
	Pids  []int
	Addrs []string
}

// beParent runs in a separate process: it starts the servers, reports them, and waits to be killed.
func beParent(dir string) {
	if os.Getenv(envOrphans) != "" {
		deathSignal = 0
	}
	all, err := StartAll(context.Background(), dir)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	var report started
	for _, s := range []*Server{all.MySQL.Server, all.Redis.Server, all.Kafka.Server} {
		report.Pids = append(report.Pids, s.Pid())
		report.Addrs = append(report.Addrs, s.Addr())
	}
	_ = json.NewEncoder(os.Stdout).Encode(report)
	select {}
}

// startParent starts a parent. It returns the parent's report, and a function that kills it with SIGKILL.
func startParent(t *testing.T, dir string, env ...string) (started, func()) {
	cmd := exec.CommandContext(t.Context(), "/proc/self/exe")
	cmd.Env = append(append(os.Environ(), envParent+"="+dir), env...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	require.NoError(t, err)
	begin := time.Now()
	require.NoError(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	require.NoError(t, err)
	t.Logf("all three started in %v", time.Since(begin).Round(time.Millisecond))
	var report started
	require.NoError(t, json.Unmarshal(line, &report))
	return report, func() {
		require.NoError(t, cmd.Process.Kill())
		require.Error(t, cmd.Wait())
	}
}

func startAgain(t *testing.T, dir string) *All {
	begin := time.Now()
	all, err := StartAll(t.Context(), dir)
	require.NoError(t, err)
	t.Logf("all three started again in %v", time.Since(begin).Round(time.Millisecond))
	t.Cleanup(func() {
		begin := time.Now()
		require.NoError(t, all.Stop(context.Background()))
		t.Logf("all three stopped in %v", time.Since(begin).Round(time.Millisecond))
	})
	return all
}

func addresses(all *All) []string {
	return []string{all.MySQL.Addr(), all.Redis.Addr(), all.Kafka.Addr()}
}

func TestStartAll_childrenDieWithTheirParent(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, kill := startParent(t, dir)
	for i, k := range kinds {
		k.write(t, serverAt(dir, i, first), "before")
	}
	kill()
	for _, pid := range first.Pids {
		require.Eventually(t, func() bool { return identity(pid) == "" }, 5*time.Second, 10*time.Millisecond,
			"process %d outlives its parent", pid)
	}

	all := startAgain(t, dir)
	require.Equal(t, first.Addrs, addresses(all))
	for i, s := range []*Server{all.MySQL.Server, all.Redis.Server, all.Kafka.Server} {
		require.Equal(t, []string{"before"}, kinds[i].read(t, s))
	}
}

func TestStartAll_stopsServersOfAnEarlierRun(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	first, kill := startParent(t, dir, envOrphans+"=1")
	for i, k := range kinds {
		k.write(t, serverAt(dir, i, first), "before")
	}
	kill()
	for _, pid := range first.Pids {
		require.NotEmpty(t, identity(pid), "the test needs process %d to live on", pid)
		t.Cleanup(func() { _ = syscall.Kill(pid, syscall.SIGKILL) })
	}

	all := startAgain(t, dir)
	for _, pid := range first.Pids {
		require.Empty(t, identity(pid))
	}
	require.Equal(t, first.Addrs, addresses(all))
	for i, s := range []*Server{all.MySQL.Server, all.Redis.Server, all.Kafka.Server} {
		require.Equal(t, []string{"before"}, kinds[i].read(t, s))
	}
}

// A process that does not end in time is killed, and a failure is an error.
func TestProcess_terminates(t *testing.T) {
	t.Parallel()
	for script, want := range map[string]string{
		`trap "exit 0" TERM`: "",
		`trap "exit 3" TERM`: "ended with exit status 3 after SIGTERM",
		`trap "" TERM`:       "did not end within 500ms after SIGTERM",
	} {
		cmd := exec.Command("sh", "-c", script+"; echo ready; while :; do sleep 0.01; done")
		out, err := cmd.StdoutPipe()
		require.NoError(t, err)
		p, err := Spawn(cmd)
		require.NoError(t, err)
		_, err = bufio.NewReader(out).ReadString('\n')
		require.NoError(t, err)
		if err = p.Terminate(500 * time.Millisecond); want == "" {
			require.NoError(t, err, script)
		} else {
			require.EqualError(t, err, want)
		}
		require.False(t, p.alive())
	}
}

// serverAt returns a Server to connect to the server of another process.
func serverAt(dir string, i int, of started) *Server {
	var port int
	_, _ = fmt.Sscanf(of.Addrs[i][strings.LastIndexByte(of.Addrs[i], ':'):], ":%d", &port)
	return &Server{dir: filepath.Join(dir, kinds[i].name), ports: []int{port}}
}

func TestStopLeftover_keepsAnotherProcessWithTheSameID(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "pid")
	boot := strings.Fields(identity(os.Getpid()))[2]
	require.NoError(t, os.WriteFile(path, fmt.Appendf(nil, "%d 1 %s", os.Getpid(), boot), 0o600))
	require.NoError(t, stopLeftover(t.Context(), path))
}

// The producer continues after the crashes. All acknowledged messages must be stored, in order. Messages with an error
// may be stored, too.
func TestKafka_losesNothingAcknowledgedWhenKilledUnderLoad(t *testing.T) {
	t.Parallel()
	s := startKind(t, kinds[2], t.TempDir())
	createTopic(t, s, "load")
	cfg := kafkaConfig()
	cfg.Producer.Retry.Max = 100
	cfg.Producer.Retry.Backoff = 50 * time.Millisecond
	producer, err := sarama.NewSyncProducer([]string{s.Addr()}, cfg)
	require.NoError(t, err)
	defer producer.Close()

	acknowledged := make(chan string, 1<<20)
	stop, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for i := 0; ; i++ {
			select {
			case <-stop:
				return
			default:
			}
			value := fmt.Sprint(i)
			if _, _, err := producer.SendMessage(
				&sarama.ProducerMessage{Topic: "load", Value: sarama.StringEncoder(value)},
			); err == nil {
				acknowledged <- value
			}
		}
	}()
	var want []string
	more := func(n int) {
		for range n {
			select {
			case value := <-acknowledged:
				want = append(want, value)
			case <-time.After(30 * time.Second):
				t.Fatalf("nothing acknowledged after %d messages", len(want))
			}
		}
	}
	for range 5 {
		more(len(acknowledged) + 100)
		require.NoError(t, s.Kill())
		require.NoError(t, s.Start(t.Context()))
	}
	more(len(acknowledged) + 100)
	close(stop)
	<-done
	more(len(acknowledged))

	stored := consumeAll(t, s, "load")
	t.Logf("%d acknowledged, %d stored", len(want), len(stored))
	for _, value := range stored {
		if len(want) > 0 && want[0] == value {
			want = want[1:]
		}
	}
	require.Empty(t, want, "missing or out of order")
}
