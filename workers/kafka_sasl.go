package workers

import (
	"errors"
	"fmt"
	"io"

	"github.com/IBM/sarama"
	"github.com/xdg-go/scram"
)

// The mechanisms of SASL.
const (
	SASLPlain       = "plain"
	SASLSCRAMSHA256 = "scram-sha-256"
	SASLSCRAMSHA512 = "scram-sha-512"
)

// SASLMechanisms lists them.
func SASLMechanisms() []string { return []string{SASLPlain, SASLSCRAMSHA256, SASLSCRAMSHA512} }

// SASL is an account at the brokers.
type SASL struct {
	Mechanism      string // one of SASLMechanisms
	User, Password string
}

// apply sets the account in the settings of sarama.
func (s *SASL) apply(c *sarama.Config) {
	if s == nil {
		return
	}
	c.Net.SASL.Enable = true
	c.Net.SASL.User, c.Net.SASL.Password = s.User, s.Password
	switch s.Mechanism {
	case SASLSCRAMSHA256:
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA256
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA256} }
	case SASLSCRAMSHA512:
		c.Net.SASL.Mechanism = sarama.SASLTypeSCRAMSHA512
		c.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: scram.SHA512} }
	default:
		c.Net.SASL.Mechanism = sarama.SASLTypePlaintext
	}
}

// scramClient is one authentication.
type scramClient struct {
	hash         scram.HashGeneratorFcn
	conversation *scram.ClientConversation
}

// Begin begins the conversation.
func (s *scramClient) Begin(user, password, authzID string) error {
	client, err := s.hash.NewClient(user, password, authzID)
	if err != nil {
		return fmt.Errorf("scram: %w", err)
	}
	s.conversation = client.NewConversation()
	return nil
}

// Step answers a challenge.
func (s *scramClient) Step(challenge string) (string, error) {
	answer, err := s.conversation.Step(challenge)
	if err != nil {
		return "", fmt.Errorf("scram: %w", err)
	}
	return answer, nil
}

// Done reports whether the conversation has ended.
func (s *scramClient) Done() bool { return s.conversation.Done() }

// ErrHungUp means that a broker has closed the connection in place of an answer to the account. Some do so if they
// refuse it.
var ErrHungUp = errors.New("the broker closes the connection when it has the account")

// Dial returns the reason why no broker accepts a connection, or nil. It waits for each broker as long as a dial and
// an answer may take.
func (k Kafka) Dial() error {
	var errs []error
	for _, address := range k.Brokers {
		broker := sarama.NewBroker(address)
		if err := broker.Open(k.config()); err != nil {
			errs = append(errs, err)
			continue
		}
		_, err := broker.Connected() // waits for the handshakes
		_ = broker.Close()           // a broker that is not connected cannot be closed
		if err == nil {
			return nil
		}
		if k.SASL != nil && errors.Is(err, io.EOF) {
			err = fmt.Errorf("%w: %w", ErrHungUp, err)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}
