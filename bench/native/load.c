/* A load generator: closed loop, one thread, epoll, loopback only.
 *
 *   load -p PORT -f FILE -c CONNECTIONS -s SECONDS [-n COUNT] [-g STAGGER_MS]
 *
 * FILE holds whole HTTP requests, each after a line with its length in bytes; they are sent in
 * turn. Each connection sends one, reads its answer to the end, sends the next. After SECONDS or
 * COUNT requests nothing new is sent and what runs may end, for DRAIN_MS at most. The connections
 * start within STAGGER_MS. One JSON object is printed; events are counted at their blank lines.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#define READ_BYTES 65536
#define HEAD_MAX_BYTES 16384
#define LATENCIES_MAX 4000000
#define READY_MAX 512
#define DRAIN_MS 10000
#define ERRORS_MAX 1000
#define MS_NANOS 1000000LL

enum Phase { IDLE, HEAD, COUNTED, CHUNK_SIZE, CHUNK, CHUNK_END, TRAILER, UNTIL_CLOSE };

typedef struct {
    int fd;
    enum Phase phase;
    char head[HEAD_MAX_BYTES + 1];
    size_t head_bytes;
    uint64_t left; /* bytes of the body or of the chunk */
    int status, closes, last_was_newline, size_digits, line_bytes;
    int64_t sent_nanos;
} Connection;

typedef struct {
    char *data;
    size_t bytes;
} Request;

static Request *requests;
static size_t request_count, next_request;
static int port, connection_count, poller;
static long most = -1, started;
static int64_t begin_nanos, end_nanos;
static long done, errors, in_window;
static long events, events_in_window;
static uint32_t *latencies_micros;
static long latency_count;
static char first_error[512];

static int64_t now_nanos(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 * MS_NANOS + now.tv_nsec;
}

static void read_requests(const char *path) {
    FILE *file = fopen(path, "rb");
    size_t bytes, room = 0;
    if (!file) exit(2);
    while (fscanf(file, "%zu", &bytes) == 1 && fgetc(file) == '\n') {
        if (request_count == room) {
            room = room ? room * 2 : 64;
            requests = realloc(requests, room * sizeof *requests);
        }
        char *data = malloc(bytes);
        if (fread(data, 1, bytes, file) != bytes) exit(2);
        requests[request_count++] = (Request){data, bytes};
    }
    fclose(file);
    if (!request_count) exit(2);
}

static void fail(Connection *connection, const char *why) {
    errors++;
    if (!first_error[0]) {
        snprintf(first_error, sizeof first_error, "%s, status %d", why, connection->status);
        for (char *at = first_error; *at; at++)
            if (*at == '"' || *at == '\\' || (unsigned char)*at < ' ') *at = ' ';
    }
    if (connection->fd >= 0) close(connection->fd);
    connection->fd = -1;
    connection->phase = IDLE;
}

static int open_connection(Connection *connection) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons((uint16_t)port)};
    int one = 1;
    inet_pton(AF_INET, "127.0.0.1", &address.sin_addr);
    connection->fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(connection->fd, (struct sockaddr *)&address, sizeof address) < 0) {
        fail(connection, "cannot connect");
        return -1;
    }
    setsockopt(connection->fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    fcntl(connection->fd, F_SETFL, O_NONBLOCK);
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = connection};
    epoll_ctl(poller, EPOLL_CTL_ADD, connection->fd, &event);
    return 0;
}

static void start_request(Connection *connection) {
    int64_t now = now_nanos();
    if (now >= end_nanos || (most >= 0 && started >= most) || errors > ERRORS_MAX) {
        if (connection->fd >= 0) close(connection->fd);
        connection->fd = -1;
        connection->phase = IDLE;
        return;
    }
    if (connection->fd < 0 && open_connection(connection) < 0) return;
    Request *request = &requests[next_request++ % request_count];
    started++;
    connection->sent_nanos = now;
    connection->phase = HEAD;
    connection->head_bytes = 0;
    connection->status = 0;
    connection->last_was_newline = 0;
    if (send(connection->fd, request->data, request->bytes, MSG_NOSIGNAL) != (ssize_t)request->bytes)
        fail(connection, "cannot send");
}

static void finish(Connection *connection) {
    int64_t now = now_nanos();
    if (connection->status != 200) {
        fail(connection, connection->head_bytes ? connection->head : "refused");
        start_request(connection);
        return;
    }
    done++;
    if (now <= end_nanos) in_window++;
    if (latency_count < LATENCIES_MAX)
        latencies_micros[latency_count++] = (uint32_t)((now - connection->sent_nanos) / 1000);
    if (connection->closes) {
        close(connection->fd);
        connection->fd = -1;
    }
    start_request(connection);
}

static void read_head(Connection *connection) {
    char *head = connection->head;
    connection->status = atoi(head + 9);
    connection->closes = strcasestr(head, "\nconnection: close") != NULL;
    char *length = strcasestr(head, "\ncontent-length:");
    if (strcasestr(head, "\ntransfer-encoding: chunked")) {
        connection->phase = CHUNK_SIZE;
        connection->left = 0;
        connection->size_digits = 0;
    } else if (length) {
        connection->phase = COUNTED;
        connection->left = strtoull(length + 16, NULL, 10);
    } else {
        connection->phase = UNTIL_CLOSE;
        connection->closes = 1;
    }
}

static void count_events(Connection *connection, const char *data, size_t bytes) {
    long found = 0;
    for (const char *at = data, *end = data + bytes; at < end;) {
        if (*at == '\n' && connection->last_was_newline) found++;
        if (*at == '\n') {
            connection->last_was_newline = !connection->last_was_newline;
            at++;
            continue;
        }
        connection->last_was_newline = 0;
        at = memchr(at, '\n', (size_t)(end - at));
        if (!at) break;
    }
    events += found;
    if (found && now_nanos() <= end_nanos) events_in_window += found;
}

/* Take one byte of a chunk's size line; 1 at its end. */
static int take_size(Connection *connection, char byte) {
    if (byte == '\n') return connection->size_digits > 0;
    int digit = byte >= '0' && byte <= '9'   ? byte - '0'
                : byte >= 'a' && byte <= 'f' ? byte - 'a' + 10
                : byte >= 'A' && byte <= 'F' ? byte - 'A' + 10
                                             : -1;
    if (digit >= 0) {
        connection->left = connection->left * 16 + (uint64_t)digit;
        connection->size_digits++;
    }
    return 0;
}

static size_t take_body(Connection *connection, const char *data, size_t bytes) {
    size_t taken = connection->phase == UNTIL_CLOSE || bytes < connection->left
                       ? bytes
                       : (size_t)connection->left;
    count_events(connection, data, taken);
    if (connection->phase != UNTIL_CLOSE) connection->left -= taken;
    return taken;
}

/* Returns how many bytes were taken; the phase is IDLE when the answer is whole. */
static size_t take(Connection *connection, const char *data, size_t bytes) {
    switch (connection->phase) {
    case HEAD: {
        size_t before = connection->head_bytes, room = HEAD_MAX_BYTES - before;
        size_t copied = bytes < room ? bytes : room;
        memcpy(connection->head + before, data, copied);
        connection->head[before + copied] = 0;
        char *end = strstr(connection->head, "\r\n\r\n");
        if (!end) {
            connection->head_bytes += copied;
            return copied;
        }
        size_t head_bytes = (size_t)(end - connection->head) + 4;
        connection->head[head_bytes - 2] = 0;
        connection->head_bytes = head_bytes;
        read_head(connection);
        if (connection->phase == COUNTED && !connection->left) connection->phase = IDLE;
        return head_bytes - before;
    }
    case COUNTED: {
        size_t taken = take_body(connection, data, bytes);
        if (!connection->left) connection->phase = IDLE;
        return taken;
    }
    case CHUNK_SIZE:
        if (take_size(connection, *data)) {
            connection->phase = connection->left ? CHUNK : TRAILER;
            connection->line_bytes = 0;
        }
        return 1;
    case CHUNK: {
        size_t taken = take_body(connection, data, bytes);
        if (!connection->left) connection->phase = CHUNK_END;
        return taken;
    }
    case CHUNK_END:
        if (*data == '\n') {
            connection->phase = CHUNK_SIZE;
            connection->size_digits = 0;
        }
        return 1;
    case TRAILER:
        if (*data == '\n') {
            if (!connection->line_bytes) connection->phase = IDLE;
            connection->line_bytes = 0;
        } else if (*data != '\r') connection->line_bytes++;
        return 1;
    case UNTIL_CLOSE:
        return take_body(connection, data, bytes);
    case IDLE:
        break;
    }
    return bytes;
}

static void on_readable(Connection *connection) {
    static char data[READ_BYTES];
    ssize_t got = recv(connection->fd, data, sizeof data, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0) {
        if (connection->phase == UNTIL_CLOSE && got == 0) finish(connection);
        else {
            fail(connection, "closed in the middle");
            start_request(connection);
        }
        return;
    }
    size_t at = 0;
    while (at < (size_t)got && connection->phase != IDLE) {
        size_t taken = take(connection, data + at, (size_t)got - at);
        if (!taken) break;
        at += taken;
    }
    if (connection->phase == HEAD && connection->head_bytes >= HEAD_MAX_BYTES)
        fail(connection, "too long a head");
    else if (connection->phase == IDLE) finish(connection);
}

static int by_size(const void *left, const void *right) {
    uint32_t a = *(const uint32_t *)left, b = *(const uint32_t *)right;
    return (a > b) - (a < b);
}

static double share_ms(double share) {
    if (!latency_count) return 0;
    long at = (long)(share * (double)latency_count);
    return latencies_micros[at < latency_count ? at : latency_count - 1] / 1000.0;
}

static void report(void) {
    int64_t now = now_nanos(), window_end = now < end_nanos ? now : end_nanos;
    qsort(latencies_micros, (size_t)latency_count, sizeof *latencies_micros, by_size);
    printf("{\"requests\":%ld,\"requests_in_window\":%ld,\"events\":%ld,\"events_in_window\":%ld,"
           "\"window_seconds\":%.6f,\"errors\":%ld,\"p50_ms\":%.3f,\"p99_ms\":%.3f,"
           "\"first_error\":\"%s\"}\n",
           done, in_window, events, events_in_window, (double)(window_end - begin_nanos) / 1e9,
           errors, share_ms(0.5), share_ms(0.99), first_error);
}

int main(int count, char **arguments) {
    double seconds = 0;
    int64_t stagger_nanos = 0;
    for (int option; (option = getopt(count, arguments, "p:f:c:s:n:g:")) != -1;) switch (option) {
        case 'p': port = atoi(optarg); break;
        case 'f': read_requests(optarg); break;
        case 'c': connection_count = atoi(optarg); break;
        case 's': seconds = atof(optarg); break;
        case 'n': most = atol(optarg); break;
        case 'g': stagger_nanos = atol(optarg) * MS_NANOS; break;
        default: return 2;
    }
    if (!port || !requests || !connection_count || seconds <= 0) return 2;
    Connection *connections = calloc((size_t)connection_count, sizeof *connections);
    latencies_micros = malloc(LATENCIES_MAX * sizeof *latencies_micros);
    poller = epoll_create1(EPOLL_CLOEXEC);
    begin_nanos = now_nanos();
    end_nanos = begin_nanos + (int64_t)(seconds * 1e9);
    struct epoll_event ready[READY_MAX];
    for (int begun = 0;;) {
        int64_t now = now_nanos();
        int running = 0;
        while (begun < connection_count &&
               now >= begin_nanos + stagger_nanos * begun / connection_count) {
            connections[begun].fd = -1;
            start_request(&connections[begun++]);
        }
        for (int at = 0; at < begun && !running; at++) running = connections[at].phase != IDLE;
        if (!running && begun == connection_count) break;
        if (now > end_nanos + DRAIN_MS * MS_NANOS) break;
        int found = epoll_wait(poller, ready, READY_MAX, begun < connection_count ? 1 : 20);
        for (int at = 0; at < found; at++) {
            Connection *connection = ready[at].data.ptr;
            if (connection->fd >= 0) on_readable(connection);
        }
    }
    report();
    return 0;
}
