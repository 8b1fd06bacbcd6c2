package main

import (
	"database/sql"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/go-sql-driver/mysql"
	"github.com/redis/go-redis/v9"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v3"
)

// The account of the roles, with the rights of the operator's guide, can run them, and cannot change the schema.
func TestRoles_runWithoutRightsToChangeTheSchema(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	guide, err := os.ReadFile("../../docs/operations.md")
	require.NoError(t, err)
	grant := regexp.MustCompile(`(?m)^GRANT .* ON likewise\.\* TO 'likewise_app'@'%';$`).FindString(string(guide))
	require.NotEmpty(t, grant, "the guide has the statement")
	dsn, err := mysql.ParseDSN(strings.TrimPrefix(s.env[0], "LIKEWISE_MYSQL_DSN="))
	require.NoError(t, err)
	dsn.User, dsn.Passwd = "app_of_"+dsn.DBName, "an application only"
	s.exec("CREATE USER '" + dsn.User + "'@'%' IDENTIFIED BY '" + dsn.Passwd + "'")
	t.Cleanup(func() { s.exec("DROP USER '" + dsn.User + "'@'%'") })
	s.exec(strings.NewReplacer("likewise.*", dsn.DBName+".*", "likewise_app", dsn.User, ";", "").Replace(grant))
	s.env[0] = "LIKEWISE_MYSQL_DSN=" + dsn.FormatDSN()

	app, err := sql.Open("mysql", dsn.FormatDSN())
	require.NoError(t, err)
	defer app.Close()
	for _, statement := range []string{
		"CREATE TABLE nope (id INT)",
		"ALTER TABLE users ADD COLUMN nope INT",
		"DROP TABLE users",
		"TRUNCATE TABLE users",
		"CREATE INDEX nope ON users (id)",
	} {
		_, err := app.ExecContext(t.Context(), statement)
		require.ErrorContains(t, err, "denied", statement)
	}

	users := s.accounts(2)
	_, url := s.api()
	s.start("worker")
	cron := s.start("cron", "--log-level=debug")
	s.awaitOpen()
	post := newPost(t, url, users[0])
	newComment(t, url, users[1], post)
	assert.Equal(t, likeJSON{true, 1}, like(t, url, users[1], post.path(), true))
	var list struct{ Items []contentJSON }
	call(t, url, users[1], "GET", "/v1/posts?q=text", nil, 200, &list)
	for _, job := range []string{
		"purge", "index", "drift", "void", "moderate", "close", "rings", "flush", "cool", "reconcile",
	} {
		s.succeed("cron", "run", job)
	}
	s.verify()
	cron.stop()
	assert.NotContains(t, cron.stderr.String(), "denied")
}

// compose.yaml must bound the resources of its containers, and the roles must not use the account that migrates.
func TestCompose_boundsItsContainers(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../compose.yaml")
	require.NoError(t, err)
	var file struct {
		Services map[string]struct {
			Image       string
			MemLimit    string `yaml:"mem_limit"` //nolint:tagliatelle // as Compose writes it
			Environment map[string]string
			Networks    map[string]struct {
				Address string `yaml:"ipv4_address"` //nolint:tagliatelle // as Compose writes it
			}
			Ports   []string
			Logging struct{ Options map[string]string }
		}
	}
	require.NoError(t, yaml.Unmarshal(text, &file))
	require.Len(t, file.Services, 8)
	pinned := regexp.MustCompile(`^[a-z/]+:[a-z0-9.]+@sha256:[0-9a-f]{64}$`)
	for name, s := range file.Services {
		assert.NotEmpty(t, s.MemLimit, name)
		assert.NotEmpty(t, s.Logging.Options["max-size"], name)
		assert.NotEmpty(t, s.Logging.Options["max-file"], name)
		if s.Image != "likewise" { // which is built here
			assert.Regexp(t, pinned, s.Image, name)
		}
		if port := map[string]string{"api": ":8080", "web": ":8083"}[name]; port != "" {
			require.Len(t, s.Ports, 1, name)
			assert.True(t, strings.HasSuffix(s.Ports[0], port), "the admin listener is published: %v", s.Ports)
		} else {
			assert.Empty(t, s.Ports, name)
		}
		if dsn := s.Environment["LIKEWISE_MYSQL_DSN"]; name == "migrate" {
			assert.True(t, strings.HasPrefix(dsn, "likewise:"), name)
		} else if name == "web" {
			for _, value := range s.Environment {
				assert.NotContains(t, value, "PASSWORD", "the pages need no password of a server")
			}
		} else if s.Image == "likewise" {
			assert.True(t, strings.HasPrefix(dsn, "likewise_app:"), name)
		}
	}
	web := file.Services["web"].Networks["default"].Address
	assert.NotEmpty(t, web)
	trusted := file.Services["api"].Environment["LIKEWISE_TRUSTED_PROXIES"]
	assert.True(t, strings.HasPrefix(trusted, web), "web names visitors")
	assert.Contains(t, string(text), "GRANT SELECT, INSERT, UPDATE, DELETE ON likewise.* TO 'likewise_app'@'%';")

	dockerfile, err := os.ReadFile("../../Dockerfile")
	require.NoError(t, err)
	for _, from := range regexp.MustCompile(`(?m)^FROM (\S+)`).FindAllStringSubmatch(string(dockerfile), -1) {
		if from[1] != "scratch" {
			assert.Contains(t, from[1], "@sha256:")
		}
	}
}

// supported has the versions that the product supports: the tests run on each, whatever comes after these numbers.
var supported = map[string]string{"MariaDB": "10.11", "MySQL": "9.7", "Redis": "7", "Kafka": "4", "Go": "1.26"}

func TestVersions_areTheSameEverywhere(t *testing.T) {
	t.Parallel()
	found := map[string]bool{}
	check := func(place, server, version string) {
		found[server] = true
		want := supported[server]
		if version != want && !strings.HasPrefix(version, want+".") {
			t.Errorf("%s names %s %s, and %s is supported", place, server, version, want)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile("../../" + name)
		require.NoError(t, err)
		return string(text)
	}
	named := regexp.MustCompile(`\b(MariaDB|MySQL|Redis|Kafka|Go)\*{0,2}\s+v?(\d+(?:\.\d+)*)`)
	for _, name := range []string{
		"README.md", "CONTRIBUTING.md", "Makefile", "docs/operations.md", "docs/cli.md", "docs/README.md",
	} {
		for _, m := range named.FindAllStringSubmatch(read(name), -1) {
			check(name, m[1], m[2])
		}
	}
	require.Len(t, found, len(supported), "the documents name each")

	image := regexp.MustCompile(`\b(mysql|mariadb|redis|apache/kafka|golang):([0-9.]+)[\w.-]*@`)
	names := map[string]string{
		"mysql": "MySQL", "mariadb": "MariaDB", "redis": "Redis", "apache/kafka": "Kafka", "golang": "Go",
	}
	images := image.FindAllStringSubmatch(read("compose.yaml")+read("Dockerfile"), -1)
	require.Len(t, images, 4)
	for _, m := range images {
		check("the image "+m[0], names[m[1]], m[2])
	}
	kafka := regexp.MustCompile(`(?m)^version=(\S+)`).FindStringSubmatch(read("scripts/install-kafka.sh"))
	require.NotNil(t, kafka)
	check("scripts/install-kafka.sh", "Kafka", kafka[1])
	module := regexp.MustCompile(`(?m)^go (\S+)`).FindStringSubmatch(read("go.mod"))
	require.NotNil(t, module)
	check("go.mod", "Go", module[1])
}

// The servers of the tests have the supported versions.
func TestVersions_areThoseOfTheTests(t *testing.T) {
	t.Parallel()
	s := newSite(t)
	var version string
	require.NoError(t, s.db.QueryRowContext(t.Context(), "SELECT VERSION()").Scan(&version))
	want := supported["MySQL"]
	if strings.Contains(version, "MariaDB") {
		want = supported["MariaDB"]
	}
	assert.True(t, strings.HasPrefix(version, want+"."), "%s is not %s", version, want)
	options, err := redis.ParseURL(s.url)
	require.NoError(t, err)
	client := redis.NewClient(options)
	defer client.Close()
	info, err := client.InfoMap(t.Context(), "server").Result()
	require.NoError(t, err)
	assert.True(t, strings.HasPrefix(info["Server"]["redis_version"], supported["Redis"]+"."), "%v", info["Server"])
}
