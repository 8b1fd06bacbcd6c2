package servers

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/IBM/sarama"
	"github.com/twmb/franz-go/pkg/kfake"
)

// Environment variables that make this program an embedded broker; see Main.
const (
	envBrokerData = "LIKEWISE_EMBEDDED_BROKER_DATA"
	envBrokerPort = "LIKEWISE_EMBEDDED_BROKER_PORT"
	envBrokerName = "LIKEWISE_EMBEDDED_BROKER_NAME"
)

// Kafka is a private broker. It does not create topics automatically.
type Kafka struct{ *Server }

// StartKafka starts the broker in dir, and creates dir if it does not exist. The embedded broker is another process of
// this program, so main must call Main first. The broker syncs every batch to disk before it acknowledges it.
func StartKafka(ctx context.Context, dir string) (*Kafka, error) {
	return StartKafkaBehind(ctx, dir, "")
}

// StartKafkaBehind is StartKafka behind a proxy. The broker directs its clients to advertised, a host:port that must
// lead to Addr. If advertised is empty, it directs them to Addr.
func StartKafkaBehind(ctx context.Context, dir, advertised string) (*Kafka, error) {
	p := program{
		name:    "embedded kafka",
		ports:   1,
		prepare: func(_ context.Context, s *Server) error { return os.MkdirAll(s.file("data"), 0o700) },
		command: func(s *Server) (*exec.Cmd, error) { return embeddedCommand(s, advertised) },
		probe:   probeKafka,
	}
	if choice := os.Getenv("LIKEWISE_SERVERS_KAFKA"); choice != "" {
		jars, ok := strings.CutPrefix(choice, "apache:")
		if !ok {
			return nil, fmt.Errorf("LIKEWISE_SERVERS_KAFKA is %q, not apache:DIR", choice)
		}
		p = apache(jars, advertised)
	}
	s, err := start(ctx, p, dir)
	if err != nil {
		return nil, err
	}
	return &Kafka{s}, nil
}

// Brokers returns the addresses that clients connect to first.
func (k *Kafka) Brokers() []string { return []string{k.Addr()} }

func probeKafka(_ context.Context, s *Server) error {
	cfg := sarama.NewConfig()
	cfg.Net.DialTimeout = time.Second
	cfg.Net.ReadTimeout = time.Second
	broker := sarama.NewBroker(s.Addr())
	if err := broker.Open(cfg); err != nil {
		return fmt.Errorf("connect to kafka: %w", err)
	}
	defer broker.Close()
	metadata, err := broker.GetMetadata(sarama.NewMetadataRequest(cfg.Version, nil))
	if err != nil {
		return fmt.Errorf("ask kafka: %w", err)
	}
	if len(metadata.Brokers) == 0 {
		return errors.New("kafka has no broker yet")
	}
	return nil
}

// Main must be the first call in main and in TestMain of every program that starts an embedded broker. In the broker's
// process, Main serves until SIGTERM and does not return. In other processes it returns at once.
func Main() {
	data := os.Getenv(envBrokerData)
	if data == "" {
		return
	}
	if err := serveBroker(data, os.Getenv(envBrokerPort), os.Getenv(envBrokerName)); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveBroker(data, port, advertised string) error {
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM)
	number, err := strconv.Atoi(port)
	if err != nil {
		return fmt.Errorf("port of the embedded broker: %w", err)
	}
	stopping := make(chan struct{})
	cluster, err := kfake.NewCluster(
		kfake.Ports(number),
		kfake.ListenFn(func(network, address string) (net.Listener, error) {
			l, err := net.Listen(network, address)
			return brokerListener{l, advertised, stopping}, err
		}),
		kfake.DataDir(data),
		kfake.SyncWrites(),
		kfake.WithLogger(kfake.BasicLogger(os.Stderr, kfake.LogLevelWarn)),
	)
	if err != nil {
		return fmt.Errorf("embedded broker: %w", err)
	}
	<-stop
	close(stopping)
	cluster.Close() // writes a snapshot, so that the next start need not read all segments
	return nil
}

// brokerListener reports the advertised address as its own, because the broker directs its clients to the address of
// its listener. Each of its connections is a lingeringConn.
type brokerListener struct {
	net.Listener

	advertised string          // empty means its own
	stopping   <-chan struct{} // closed when the broker stops, which waits for all connections
}

func (l brokerListener) Addr() net.Addr {
	if l.advertised == "" {
		return l.Listener.Addr()
	}
	return advertisedAddr(l.advertised)
}

func (l brokerListener) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &lingeringConn{Conn: c, stopping: l.stopping, closed: make(chan struct{})}, nil
}

type advertisedAddr string

func (advertisedAddr) Network() string  { return "tcp" }
func (a advertisedAddr) String() string { return string(a) }

// lingeringConn reports the disconnection of its client after lingerTime. The broker starts the session of a group
// member when it replies to the member's join, and only if the client is still connected. The session of a client that
// was killed before would never expire, and its partitions would not be reassigned. Kafka always starts the session.
type lingeringConn struct {
	net.Conn

	stopping <-chan struct{}
	close    sync.Once
	closed   chan struct{}
}

// lingerTime is longer than any join waits, which may take several rebalances with their timeouts.
const lingerTime = 30 * time.Second

func (c *lingeringConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if err == nil {
		return n, nil
	}
	linger := time.NewTimer(lingerTime)
	defer linger.Stop()
	select {
	case <-linger.C:
	case <-c.closed:
	case <-c.stopping:
	}
	return n, err
}

func (c *lingeringConn) Close() error {
	c.close.Do(func() { close(c.closed) })
	return c.Conn.Close()
}

func embeddedCommand(s *Server, advertised string) (*exec.Cmd, error) {
	// Not the path of the program, which may have been rebuilt since it started.
	cmd := exec.Command("/proc/self/exe")
	cmd.Args[0] = "likewise-embedded-kafka"
	cmd.Env = append(environment(), envBrokerData+"="+s.file("data"), envBrokerPort+"="+strconv.Itoa(s.ports[0]),
		envBrokerName+"="+advertised,
		"GORACE=atexit_sleep_ms=0") // or the race detector keeps a stopped broker for a second
	return cmd, nil
}

// apache is a single node of Apache Kafka, with its own controller, from a folder of jars.
func apache(jars, advertised string) program {
	return program{
		name:    "apache kafka",
		ports:   2, // clients, controller
		prepare: func(ctx context.Context, s *Server) error { return prepareApache(ctx, s, jars) },
		command: func(s *Server) (*exec.Cmd, error) {
			config := filepath.Join(s.dir, "server.properties")
			if err := os.WriteFile(
				config, []byte(apacheConfig(s.file("data"), s.ports[0], s.ports[1], advertised)), 0o600,
			); err != nil {
				return nil, fmt.Errorf("write settings: %w", err)
			}
			return javaCommand(s.dir, jars, "kafka.Kafka", config)
		},
		probe: probeKafka,
	}
}

func apacheConfig(data string, port, controllerPort int, advertised string) string {
	if advertised == "" {
		advertised = fmt.Sprintf("127.0.0.1:%d", port)
	}
	return fmt.Sprintf(`process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:%[3]d
controller.listener.names=CONTROLLER
listeners=PLAINTEXT://127.0.0.1:%[2]d,CONTROLLER://127.0.0.1:%[3]d
advertised.listeners=PLAINTEXT://%[4]s
listener.security.protocol.map=PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT
log.dirs=%[1]s
auto.create.topics.enable=false
# one node has nobody to copy to
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
# small and quick
offsets.topic.num.partitions=4
transaction.state.log.num.partitions=4
group.initial.rebalance.delay.ms=0
# how long a killed node waits before it may register again
broker.session.timeout.ms=1500
broker.heartbeat.interval.ms=300
log.cleaner.dedupe.buffer.size=4194304
num.network.threads=2
num.io.threads=4
background.threads=2
`, data, port, controllerPort, advertised)
}

func prepareApache(ctx context.Context, s *Server, jars string) error {
	if _, err := os.Stat(s.file("data")); err == nil {
		return nil
	}
	fresh := s.file("data.new")
	if err := os.RemoveAll(fresh); err != nil {
		return fmt.Errorf("remove half-made data: %w", err)
	}
	config := s.file("format.properties")
	// The storage tool requires ports in the settings, but does not store them.
	if err := os.WriteFile(config, []byte(apacheConfig(fresh, 1, 2, "")), 0o600); err != nil {
		return fmt.Errorf("write settings: %w", err)
	}
	defer os.Remove(config)
	cmd, err := javaCommand(s.dir, jars, "kafka.tools.StorageTool", "format", "--cluster-id", "likewiseprivateserver0",
		"--config", config)
	if err != nil {
		return err
	}
	if err := runToEnd(ctx, cmd); err != nil {
		return err
	}
	if err := os.Rename(fresh, s.file("data")); err != nil {
		return fmt.Errorf("put data in place: %w", err)
	}
	return nil
}

func javaCommand(dir, jars, class string, args ...string) (*exec.Cmd, error) {
	java, err := find("java", "apt-get install default-jre-headless")
	if err != nil {
		return nil, err
	}
	jars, err = filepath.Abs(jars)
	if err != nil {
		return nil, fmt.Errorf("folder of jars: %w", err)
	}
	if found, _ := filepath.Glob(filepath.Join(jars, "kafka_2.13-*.jar")); found == nil {
		return nil, fmt.Errorf("no Apache Kafka in %s: run %q", jars, "scripts/install-kafka.sh "+jars)
	}
	cmd := exec.Command(java, append([]string{
		"-Xmx384m",
		"-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", // for a quick start
		"-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
		"-cp", filepath.Join(jars, "*"),
		class,
	}, args...)...)
	cmd.Dir = dir
	cmd.Env = environment()
	return cmd, nil
}
