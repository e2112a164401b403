/* A vendor that costs next to nothing, so that what is measured is the gateway.
 *
 *   vendor FD        FD is a listening socket that the parent has made.
 *
 * HTTP/1.1 with keep-alive, one thread, epoll. A request whose body says "stream":true is answered
 * by EVENTS events, each in a write of its own, as tokens come; any other by one completion. The
 * model says how far apart the events are: bench-10 is 10 ms, bench-0 is as fast as they are read.
 */
#define _GNU_SOURCE
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

#define EVENTS 52
#define REQUEST_MAX_BYTES (1 << 20)
#define READ_BYTES 65536
#define PACES_MAX 16
#define READY_MAX 512
#define MS_NANOS 1000000LL

typedef struct Stream {
    int fd;
    char *in;
    size_t in_bytes, in_room;
    char *out; /* what the socket did not take */
    size_t out_bytes, out_sent;
    int next_event; /* 0: no stream is running */
    int is_queued;
    struct Pace *pace;
    int64_t due_nanos;
    struct Stream *before, *after;
} Stream;

/* Streams with the same interval: the first one is due first. */
typedef struct Pace {
    int64_t interval_nanos;
    Stream *first, *last;
} Pace;

static Pace paces[PACES_MAX];
static int pace_count;
static int poller;
static char *events[EVENTS];
static size_t event_bytes[EVENTS];
static char answer[1024];
static size_t answer_bytes;
static const char stream_head[] =
    "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n"
    "cache-control: no-cache\r\nserver: bench\r\ntransfer-encoding: chunked\r\n\r\n";

static int64_t now_nanos(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000 * MS_NANOS + now.tv_nsec;
}

static void make_answers(void) {
    const char *body =
        "{\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion\",\"created\":1700000000,"
        "\"model\":\"bench\",\"choices\":[{\"index\":0,\"message\":{\"role\":\"assistant\","
        "\"content\":\"Hello! How can I help?\"},\"finish_reason\":\"stop\"}],"
        "\"usage\":{\"prompt_tokens\":41,\"completion_tokens\":7,\"total_tokens\":48}}";
    answer_bytes = (size_t)snprintf(
        answer, sizeof answer,
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\nserver: bench\r\n"
        "content-length: %zu\r\n\r\n%s",
        strlen(body), body);
    for (int at = 0; at < EVENTS; at++) {
        char event[512], *chunk = NULL;
        const char *head = "data: {\"id\":\"chatcmpl-bench\",\"object\":\"chat.completion.chunk\","
                           "\"created\":1700000000,\"model\":\"bench\",";
        int bytes;
        if (at == EVENTS - 1)
            bytes = snprintf(event, sizeof event, "data: [DONE]\n\n");
        else if (at == EVENTS - 2)
            bytes = snprintf(event, sizeof event,
                             "%s\"choices\":[],\"usage\":{\"prompt_tokens\":41,"
                             "\"completion_tokens\":48,\"total_tokens\":89}}\n\n", head);
        else if (at == EVENTS - 3)
            bytes = snprintf(event, sizeof event,
                             "%s\"choices\":[{\"index\":0,\"delta\":{},"
                             "\"finish_reason\":\"stop\"}]}\n\n", head);
        else if (at == 0)
            bytes = snprintf(event, sizeof event,
                             "%s\"choices\":[{\"index\":0,\"delta\":{\"role\":\"assistant\","
                             "\"content\":\"\"},\"finish_reason\":null}]}\n\n", head);
        else
            bytes = snprintf(event, sizeof event,
                             "%s\"choices\":[{\"index\":0,\"delta\":{\"content\":\" word%d\"},"
                             "\"finish_reason\":null}]}\n\n", head, at);
        int whole = asprintf(&chunk, "%x\r\n%s\r\n%s", bytes, event,
                             at == EVENTS - 1 ? "0\r\n\r\n" : "");
        if (whole < 0) exit(1);
        events[at] = chunk;
        event_bytes[at] = (size_t)whole;
    }
}

static void enqueue(Stream *stream) {
    Pace *pace = stream->pace;
    stream->before = pace->last;
    stream->after = NULL;
    if (pace->last) pace->last->after = stream;
    else pace->first = stream;
    pace->last = stream;
    stream->is_queued = 1;
}

static void dequeue(Stream *stream) {
    if (!stream->is_queued) return;
    Pace *pace = stream->pace;
    if (stream->before) stream->before->after = stream->after;
    else pace->first = stream->after;
    if (stream->after) stream->after->before = stream->before;
    else pace->last = stream->before;
    stream->is_queued = 0;
}

static Pace *pace_of(int64_t interval_nanos) {
    for (int at = 0; at < pace_count; at++)
        if (paces[at].interval_nanos == interval_nanos) return &paces[at];
    if (pace_count == PACES_MAX) return &paces[0];
    paces[pace_count].interval_nanos = interval_nanos;
    return &paces[pace_count++];
}

/* A closed stream is freed after the turn: the turn's list of ready ones may still name it. */
static Stream *closed[READY_MAX + 1];
static int closed_count;

static void drop(Stream *stream) {
    if (stream->fd < 0) return;
    dequeue(stream);
    close(stream->fd);
    stream->fd = -1;
    if (closed_count <= READY_MAX) closed[closed_count++] = stream;
}

static void watch(Stream *stream, uint32_t what, int how) {
    struct epoll_event event = {.events = what, .data.ptr = stream};
    epoll_ctl(poller, how, stream->fd, &event);
}

static int put(Stream *stream, const char *data, size_t bytes) {
    ssize_t sent = send(stream->fd, data, bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno != EAGAIN) {
        drop(stream);
        return -1;
    }
    if (sent < 0) sent = 0;
    if ((size_t)sent == bytes) return 0;
    stream->out_bytes = bytes - (size_t)sent;
    stream->out_sent = 0;
    stream->out = realloc(stream->out, stream->out_bytes);
    memcpy(stream->out, data + sent, stream->out_bytes);
    dequeue(stream);
    watch(stream, EPOLLIN | EPOLLOUT, EPOLL_CTL_MOD);
    return -1;
}

static void send_event(Stream *stream, int64_t now) {
    int at = stream->next_event - 1;
    dequeue(stream);
    stream->next_event = at + 1 == EVENTS ? 0 : stream->next_event + 1;
    stream->due_nanos += stream->pace->interval_nanos;
    if (stream->pace->interval_nanos == 0) stream->due_nanos = now + 1;
    if (put(stream, events[at], event_bytes[at]) == 0 && stream->next_event) enqueue(stream);
}

static void send_what_is_due(void) {
    int64_t now = now_nanos();
    for (int at = 0; at < pace_count; at++)
        while (paces[at].first && paces[at].first->due_nanos <= now)
            send_event(paces[at].first, now);
}

/* How many bytes the first request in the buffer has; 0 while it is not whole. */
static size_t whole_request(Stream *stream, char **body) {
    char *end = memmem(stream->in, stream->in_bytes, "\r\n\r\n", 4);
    if (!end) return 0;
    *end = 0;
    char *length = strcasestr(stream->in, "\ncontent-length:");
    char *chunked = strcasestr(stream->in, "\ntransfer-encoding: chunked");
    *end = '\r';
    *body = end + 4;
    size_t have = stream->in_bytes - (size_t)(*body - stream->in);
    size_t wanted = length ? strtoul(length + 16, NULL, 10) : 0;
    if (chunked) {
        char *last = memmem(*body, have, "0\r\n\r\n", 5);
        if (!last) return 0;
        wanted = (size_t)(last + 5 - *body);
    }
    return have < wanted ? 0 : (size_t)(*body - stream->in) + wanted;
}

static void answer_request(Stream *stream, char *body, size_t bytes) {
    int streams = memmem(body, bytes, "\"stream\":true", 13) ||
                  memmem(body, bytes, "\"stream\": true", 14);
    if (!streams) {
        put(stream, answer, answer_bytes);
        return;
    }
    char *model = memmem(body, bytes, "bench-", 6);
    stream->pace = pace_of(model ? strtol(model + 6, NULL, 10) * MS_NANOS : 0);
    stream->next_event = 1;
    stream->due_nanos = now_nanos();
    if (put(stream, stream_head, sizeof stream_head - 1) == 0) enqueue(stream);
}

static void on_readable(Stream *stream) {
    if (stream->in_room - stream->in_bytes < READ_BYTES + 1) {
        stream->in_room = stream->in_bytes + READ_BYTES + 1;
        stream->in = realloc(stream->in, stream->in_room);
    }
    ssize_t got = recv(stream->fd, stream->in + stream->in_bytes, READ_BYTES, 0);
    if (got < 0 && errno == EAGAIN) return;
    if (got <= 0 || stream->in_bytes + (size_t)got > REQUEST_MAX_BYTES) {
        drop(stream);
        return;
    }
    stream->in_bytes += (size_t)got;
    stream->in[stream->in_bytes] = 0;
    char *body;
    size_t bytes;
    while (stream->fd >= 0 && !stream->next_event && (bytes = whole_request(stream, &body))) {
        answer_request(stream, body, bytes - (size_t)(body - stream->in));
        stream->in_bytes -= bytes;
        memmove(stream->in, stream->in + bytes, stream->in_bytes + 1);
    }
}

static void on_writable(Stream *stream) {
    ssize_t sent = send(stream->fd, stream->out + stream->out_sent, stream->out_bytes, MSG_NOSIGNAL);
    if (sent < 0 && errno == EAGAIN) return;
    if (sent < 0) {
        drop(stream);
        return;
    }
    stream->out_sent += (size_t)sent;
    stream->out_bytes -= (size_t)sent;
    if (stream->out_bytes) return;
    watch(stream, EPOLLIN, EPOLL_CTL_MOD);
    if (stream->next_event) {
        stream->due_nanos = now_nanos();
        enqueue(stream);
    }
}

static void accept_all(int listener) {
    int fd, one = 1;
    while ((fd = accept4(listener, NULL, NULL, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0) {
        Stream *stream = calloc(1, sizeof *stream);
        setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
        stream->fd = fd;
        watch(stream, EPOLLIN, EPOLL_CTL_ADD);
    }
}

/* Milliseconds until a stream is due; -1: none is. */
static int wait_ms(void) {
    int64_t now = now_nanos(), soonest = INT64_MAX;
    for (int at = 0; at < pace_count; at++)
        if (paces[at].first && paces[at].first->due_nanos < soonest)
            soonest = paces[at].first->due_nanos;
    if (soonest == INT64_MAX) return -1;
    return soonest <= now + 1000 ? 0 : (int)((soonest - now + MS_NANOS - 1) / MS_NANOS);
}

int main(int count, char **arguments) {
    if (count != 2) return 2;
    int listener = atoi(arguments[1]);
    fcntl(listener, F_SETFL, O_NONBLOCK);
    make_answers();
    pace_of(0);
    poller = epoll_create1(EPOLL_CLOEXEC);
    struct epoll_event on_listener = {.events = EPOLLIN, .data.ptr = NULL};
    epoll_ctl(poller, EPOLL_CTL_ADD, listener, &on_listener);
    struct epoll_event ready[READY_MAX];
    for (;;) {
        int found = epoll_wait(poller, ready, READY_MAX, wait_ms());
        for (int at = 0; at < found; at++) {
            Stream *stream = ready[at].data.ptr;
            if (!stream) accept_all(listener);
            else {
                if (stream->fd >= 0 && ready[at].events & EPOLLOUT) on_writable(stream);
                if (stream->fd >= 0 && ready[at].events & ~(uint32_t)EPOLLOUT) on_readable(stream);
            }
        }
        send_what_is_due();
        while (closed_count) {
            Stream *stream = closed[--closed_count];
            free(stream->in);
            free(stream->out);
            free(stream);
        }
    }
}
