// Package admission bounds what requests cost: memory, connections to MySQL, processors, lines of the log. It holds
// mechanisms that know no resource of the API; handlers apply them.
//
// The list has every bound on requests: the attack that it answers, its value, and what a refused client sees. Values
// for one address are multiplied by --limits, and are off with --limits=0. Answers with 429 and 503 have Retry-After.
//
//   - Connections (network.Listener) answer clients that connect and send nothing: 1,000 of an address, and 20,000 or
//     as many as there are descriptors. Further ones are closed at once.
//   - MaxHeader, MaxBody and MaxUpload answer single requests that fill the memory: 431, 413.
//   - ReadTimeout, UploadTimeout and IdleTimeout answer slow senders (Slowloris): 408, or the connection is closed.
//   - WriteTimeout, and a rate for images (Sending), answer slow readers: the connection is closed.
//   - RequestTimeout answers queries and servers that hang: 503.
//   - Requests in flight (Answers) answer more requests than a process can serve in time: DefaultInFlight, beyond which
//     it refuses at once with 503; a quarter of them of an address, 429.
//   - Requests at work (Answers) answer an address that keeps all processors busy: 4 of it; more wait, and get 503 at
//     their deadline.
//   - The memory of answers (Answers) answers clients that request large answers and do not read them: 64 MiB, 503; 8
//     MiB of an address, 429.
//   - Large answers (Answers) are those over 128 KiB, which could delay all short ones: one for two processors; more
//     wait, and get 503 at their deadline.
//   - Expensive reads (Share) answer lists that take all connections to MySQL: a quarter of the connections, and an
//     eighth for moderators; more wait, and get 503 at their deadline.
//   - Places of uploads (Uploads) answer uploads that fill the memory: 8, 503; 2 of an address and 1 of a user, 429. If
//     all are taken, the slowest upload of less than 64 KiB a second is evicted and gets 408.
//   - Decoding (Uploads) answers images that take long to decode: one at a time, for DecodeLimit; 503 after DecodeWait.
//   - Downloads answer exports that are read slowly: 4 at a time, 503; one of an account, 429.
//   - Streams (live.Limits) answer connections that stay open and targets that must be watched: 10,000 streams of a
//     process, 503; 100 of an address, 429.
//   - Rates answer floods of requests, writes, likes, searches and attempts at passwords, and
//     reads that examine much: 429, with the values in docs/security.md.
//   - Lines of the log (Sampler) answer refused requests that would fill the disk: RefusalLines and ErrorLines of a
//     kind in a second. Nobody is refused because of them.
//
// docs/security.md explains the values, and what they do not cover.
package admission
