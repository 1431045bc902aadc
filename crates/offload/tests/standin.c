/* Stands in for libqatzip where there is no QAT: the few functions that are used, with the interface of QATzip 1.1 to
 * 1.3, and DEFLATE of its own (runs of one byte, fixed Huffman codes). What it does is told by standin_mode(), or by the
 * environment variable QATZIP_STANDIN when it is loaded: ok, busy, fail, nohw, garbage, oldabi, sometimes, slow. */
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { OK, BUSY, FAIL, NOHW, GARBAGE, OLDABI, SOMETIMES, SLOW };
static const char *const names[] = {"ok", "busy", "fail", "nohw", "garbage", "oldabi", "sometimes", "slow"};

static volatile int mode = OK;
static volatile int calls, misuse, open_sessions;

struct session { long hw; int thread; void *internal; unsigned long in, out; };
struct parameters {
    int huffman, direction, format;
    unsigned level;
    unsigned char algorithm;
    unsigned forks;
    unsigned char backup;
    unsigned buffer, stream, threshold, requests, waits;
};
struct inner { pthread_t thread; unsigned level; };

__attribute__((constructor)) static void from_environment(void) {
    const char *text = getenv("QATZIP_STANDIN");
    for (int i = 0; text && i <= SLOW; i++)
        if (!strcmp(text, names[i])) mode = i;
}

void standin_mode(int wanted) { mode = wanted; }
int standin_calls(void) { return calls; }
/* How often it was used in a way that the real one does not allow. */
int standin_misuse(void) { return misuse; }
int standin_open_sessions(void) { return open_sessions; }

int qzGetDefaults(struct parameters *p) {
    memset(p, 0, sizeof *p);
    p->direction = 2;
    p->format = 2;
    p->level = 1;
    p->algorithm = 8;
    if (mode == OLDABI) { /* one field more before these */
        p->forks = 10;
        p->backup = 3;
        p->buffer = 1;
        p->stream = 65536;
        return 0;
    }
    p->forks = 3;
    p->backup = 1;
    p->buffer = p->stream = 65536;
    p->threshold = 1024;
    p->requests = 32;
    p->waits = 8;
    return 0;
}

int qzInit(struct session *s, unsigned char backup) {
    if (!s || backup != 0 || s->internal) misuse++;
    return mode == NOHW ? -101 : 0;
}

int qzSetupSession(struct session *s, struct parameters *p) {
    if (!s || !p || s->internal || p->direction != 0 || p->format != 3 || p->backup != 0 || p->algorithm != 8 ||
        p->level < 1 || p->level > 9 || p->buffer != 65536 || p->waits != 8)
        return misuse++, -1;
    struct inner *inner = malloc(sizeof *inner);
    inner->thread = pthread_self();
    inner->level = p->level;
    s->internal = inner;
    __sync_fetch_and_add(&open_sessions, 1);
    return 0;
}

int qzTeardownSession(struct session *s) {
    if (s->internal) __sync_fetch_and_sub(&open_sessions, 1);
    free(s->internal);
    s->internal = NULL;
    return 0;
}

int qzClose(struct session *s) {
    if (!s || s->internal) misuse++;
    return 0;
}

struct bits { unsigned char *at, *end; unsigned long held; unsigned count; int full; };

static void put(struct bits *b, unsigned value, unsigned count) {
    b->held |= (unsigned long)value << b->count;
    for (b->count += count; b->count >= 8; b->count -= 8, b->held >>= 8) {
        if (b->at == b->end) { b->full = 1; return; }
        *b->at++ = (unsigned char)b->held;
    }
}

/* Huffman codes are sent from their highest bit on. */
static void put_code(struct bits *b, unsigned code, unsigned count) {
    unsigned turned = 0;
    for (unsigned i = 0; i < count; i++) turned |= (code >> i & 1) << (count - 1 - i);
    put(b, turned, count);
}

static void put_symbol(struct bits *b, unsigned symbol) {
    if (symbol < 144) put_code(b, 0x30 + symbol, 8);
    else if (symbol < 256) put_code(b, 0x190 + symbol - 144, 9);
    else if (symbol < 280) put_code(b, symbol - 256, 7);
    else put_code(b, 0xc0 + symbol - 280, 8);
}

int qzCompress(struct session *s, const unsigned char *src, unsigned *src_len, unsigned char *dest, unsigned *dest_len,
               unsigned last) {
    int call = __sync_add_and_fetch(&calls, 1);
    struct inner *inner = s->internal;
    if (!inner || !pthread_equal(inner->thread, pthread_self()) || last != 1) return misuse++, -1;
    if (mode == BUSY || (mode == SOMETIMES && call % 3 == 0)) return -5;
    if (mode == FAIL) return -2;
    if (mode == SLOW) nanosleep(&(struct timespec){0, 20 * 1000 * 1000}, NULL);
    struct bits b = {dest, dest + *dest_len, 0, 0, 0};
    put(&b, 1, 1); /* the last block, */
    put(&b, 1, 2); /* of fixed codes */
    for (unsigned i = 0; i < *src_len && !b.full;) {
        unsigned run = 0;
        while (i && run < 258 && i + run < *src_len && src[i + run] == src[i - 1]) run++;
        if (run == 258) { /* length 258, distance 1 */
            put_symbol(&b, 285);
            put_code(&b, 0, 5);
            i += run;
        } else if (run >= 3) { /* length 3 to 10 without more bits, distance 1 */
            if (run > 10) run = 10;
            put_symbol(&b, 257 + run - 3);
            put_code(&b, 0, 5);
            i += run;
        } else {
            put_symbol(&b, src[i++]);
        }
    }
    put_symbol(&b, 256);
    if (b.count) put(&b, 0, 8 - b.count);
    if (b.full) return -3;
    *dest_len = (unsigned)(b.at - dest);
    if (mode == GARBAGE) dest[*dest_len / 2] ^= 0x55;
    return 0;
}
