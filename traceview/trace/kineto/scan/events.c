/* The events of a Chrome trace of torch.profiler, as numbers in columns: events.py and values.py,
 * compiled.
 *
 * The text is untrusted. A NUL behind its end stops every loop, as JSON has none. What is taken is
 * valid JSON, of the types that torch writes; at anything else the scan stops, and Python decides
 * what it means. Loaded with ctypes by scanner.py, whose structure mirrors that of this file; knows
 * nothing of Python, and may run in several threads.
 */
#include "../../../compiled/texts.h"

#include <stddef.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* What runs for nearly every value is worth its place in each caller, what is rare is not. */
#ifdef __GNUC__
#define USUAL static inline __attribute__((always_inline))
#define RARE static __attribute__((noinline))
#else
#define USUAL static inline
#define RARE static
#endif

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Why a scan stopped: the rest of an event is not there yet or beyond the limit, the list of events
 * ended, the room is used up, or an event is not as torch writes them. */
enum { NEEDS_MORE, ENDED, IS_FULL, IS_ODD };

/* What an event is: with a table of its own, without anything to read, or left to Python. */
enum { KERNEL, COPY, SET, CALL, OPERATOR, ANNOTATION, PYTHON, TABLES, UNREAD = TABLES, OTHER };

/* The columns that all tables share, then those of arguments. */
enum { START, END, NAME, THREAD, FIRST_ARGUMENT };
enum { DEVICE = FIRST_ARGUMENT, CONTEXT, STREAM, CORRELATION, NODE, BYTES, GRID = BYTES };
enum { BLOCK = GRID + 3, REGISTERS = BLOCK + 3, SHARED, COLUMNS };
enum { CALL_CORRELATION = FIRST_ARGUMENT, PYTHON_ID = FIRST_ARGUMENT };

static const int COLUMNS_OF[TABLES] = {
    COLUMNS, BYTES + 1, BYTES + 1, FIRST_ARGUMENT + 1, FIRST_ARGUMENT, FIRST_ARGUMENT,
    FIRST_ARGUMENT + 1,
};

/* Numbers of more digits, and larger exponents, may be beyond a double. */
enum { MOST_NUMBER_BYTES = 64, MOST_EXPONENT_DIGITS = 2 };
enum { MOST_LEAD_BYTES = 32, MOST_PLACES = 24 };
enum { MOST_DEPTH = 64, MOST_OWNER_BYTES = 64, MOST_NAME_BYTES = 1 << 16, LONGEST_DIMS = 400 };
/* Digits of every number below the end of int64, and of microseconds whose nanoseconds are. */
enum { SAFE_DIGITS = 18, MOST_WHOLE_DIGITS = 16, MOST_FIRST = '4' };

#define ABSENT INT64_MIN
#define MOST_BYTES ((int64_t)1 << 50)
#define FARTHEST_NS ((int64_t)1 << 61)

/* A part of the text; the start is NULL, and the length any, where there is none. */
struct token {
    const uint8_t *start;
    int64_t bytes;
};

/* What is read into, and how far. Column c of row r of a table is columns[c * most_rows + r]. */
struct scan {
    const uint8_t *text;
    int64_t bytes;
    int64_t limit;    /* an event, and what follows it, ends here or before */
    int64_t at;       /* from here on; afterwards, behind the last event and its comma */
    int64_t stopped;  /* why */
    int64_t events;   /* how many were passed */
    int64_t negative; /* events of the CPU that end before they start */
    int64_t most_rows;
    int64_t rows[TABLES];
    int64_t *columns[TABLES];
    struct text_table *names[TABLES];
    struct text_table *threads; /* process, NUL, thread, as written */
    int64_t others;             /* events left to Python: start and end of each */
    int64_t *other_spans;
    int64_t details; /* rows of which Python reads more: table, row, start and end of each */
    int64_t *detail_spans;
};

enum field { PH, CAT, EVENT_NAME, PID, TID, TS, DUR, ARGS, FIELDS };

/* What stands before a value, from behind the value before it on, and what it says of it: the row
 * of its key among those that are known, or one of the others. */
enum { UNKNOWN = -1, CLOSED = -2 };
struct lead {
    uint8_t text[MOST_LEAD_BYTES];
    int64_t bytes;
    int meaning;
};

/* Leads of the last event of each kind, by place; an event is OTHER until its category is met. */
struct leads {
    struct lead fields[OTHER + 1][MOST_PLACES];
    struct lead arguments[TABLES][MOST_PLACES];
};

/* One event as it is read. */
struct event {
    struct token fields[FIELDS];
    struct token dims;
    int kind;
    int has_details;
    int has_arguments; /* in `values` */
    int64_t values[COLUMNS];
};

/* Where reading failed is where the text ends, if but the rest is missing. */
struct reader {
    const uint8_t *end;
    const uint8_t *failed;
    int escapes;
    struct leads *leads;
};

static const uint8_t *fail(struct reader *reader, const uint8_t *at)
{
    reader->failed = at;
    return NULL;
}

static int is_digit(uint8_t byte)
{
    return (uint8_t)(byte - '0') < 10;
}

static int is_hex(uint8_t byte)
{
    return is_digit(byte) || (uint8_t)((byte | 0x20) - 'a') < 6;
}

USUAL const uint8_t *after_space(const uint8_t *at)
{
    if (*at > ' ')
        return at;
    while (*at == ' ' || *at == '\n' || *at == '\r' || *at == '\t')
        at++;
    return at;
}

/* At the first byte that is not plain: a quote, backslash, control character or beyond ASCII.
 *
 * Many at a time, as most of a trace is keys and names.
 */
static inline const uint8_t *after_plain(const uint8_t *at, const uint8_t *end)
{
#if defined(__SSE2__) && defined(__GNUC__)
    const __m128i quote = _mm_set1_epi8('"'), backslash = _mm_set1_epi8('\\');
    const __m128i space = _mm_set1_epi8(' ');
    for (; end - at >= 16; at += 16) {
        __m128i text = _mm_loadu_si128((const __m128i *)at);
        /* As signed numbers, bytes beyond ASCII are less than a space too. */
        __m128i special = _mm_cmplt_epi8(text, space);
        special = _mm_or_si128(special, _mm_cmpeq_epi8(text, quote));
        special = _mm_or_si128(special, _mm_cmpeq_epi8(text, backslash));
        int found = _mm_movemask_epi8(special);
        if (found)
            return at + __builtin_ctz((unsigned)found);
    }
#elif defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    const uint64_t ones = 0x0101010101010101u, highs = ones * 0x80;
    for (; end - at >= 8; at += 8) {
        uint64_t word;
        memcpy(&word, at, sizeof word);
        uint64_t quote = word ^ ones * '"', backslash = word ^ ones * '\\';
        uint64_t special = ((quote - ones) & ~quote) | ((backslash - ones) & ~backslash) |
                           ((word - ones * ' ') & ~word) | word;
        if (special & highs)
            return at + __builtin_ctzll(special & highs) / 8;
    }
#else
    (void)end;
#endif
    while (*at >= ' ' && *at != '"' && *at != '\\' && *at < 0x80)
        at++;
    return at;
}

/* Behind a character beyond ASCII. */
static const uint8_t *after_character(struct reader *reader, const uint8_t *at)
{
    uint8_t lead = *at++, least = 0x80, most = 0xBF;
    int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
    if (lead < 0xC2 || lead > 0xF4)
        return fail(reader, at - 1);
    /* No longer form than needed, no surrogate, nothing beyond the last character. */
    if (lead == 0xE0)
        least = 0xA0;
    else if (lead == 0xED)
        most = 0x9F;
    else if (lead == 0xF0)
        least = 0x90;
    else if (lead == 0xF4)
        most = 0x8F;
    for (; more; more--, at++, least = 0x80, most = 0xBF)
        if (*at < least || *at > most)
            return fail(reader, at);
    return at;
}

/* Behind an escape, from behind its backslash on; half a surrogate pair is left to Python. */
static const uint8_t *after_escape(struct reader *reader, const uint8_t *at)
{
    reader->escapes++;
    if (*at != 'u')
        return *at && strchr("\"\\/bfnrt", *at) ? at + 1 : fail(reader, at);
    for (int digit = 1; digit <= 4; digit++)
        if (!is_hex(at[digit]))
            return fail(reader, at + digit);
    if ((at[1] | 0x20) == 'd' && at[2] >= '8')
        return fail(reader, at);
    return at + 5;
}

/* Behind the closing quote of a string, from a byte in it on that is not plain. */
static const uint8_t *after_odd_string(struct reader *reader, const uint8_t *at)
{
    for (;;) {
        if (*at == '"')
            return at + 1;
        if (*at == '\\')
            at = after_escape(reader, at + 1);
        else if (*at >= 0x80)
            at = after_character(reader, at);
        else
            return fail(reader, at);
        if (!at)
            return NULL;
        at = after_plain(at, reader->end);
    }
}

/* Behind the closing quote of a string, from behind its opening one on. */
static inline const uint8_t *after_string(struct reader *reader, const uint8_t *at)
{
    at = after_plain(at, reader->end);
    return *at == '"' ? at + 1 : after_odd_string(reader, at);
}

static const uint8_t *after_digits(struct reader *reader, const uint8_t *at)
{
    if (!is_digit(*at))
        return fail(reader, at);
    while (is_digit(*at))
        at++;
    return at;
}

static const uint8_t *after_number(struct reader *reader, const uint8_t *at)
{
    const uint8_t *first = at, *exponent;
    at += *at == '-';
    if (*at == '0')
        at++;
    else if (!(at = after_digits(reader, at)))
        return NULL;
    if (*at == '.' && !(at = after_digits(reader, at + 1)))
        return NULL;
    if (*at == 'e' || *at == 'E') {
        at++;
        at += *at == '+' || *at == '-';
        exponent = at;
        if (!(at = after_digits(reader, at)))
            return NULL;
        if (at - exponent > MOST_EXPONENT_DIGITS)
            return fail(reader, first);
    }
    return at - first > MOST_NUMBER_BYTES ? fail(reader, first) : at;
}

static const uint8_t *after_word(struct reader *reader, const uint8_t *at, const char *word)
{
    for (; *word; word++, at++)
        if (*at != (uint8_t)*word)
            return fail(reader, at);
    return at;
}

static const uint8_t *after_scalar(struct reader *reader, const uint8_t *at)
{
    switch (*at) {
    case '"':
        return after_string(reader, at + 1);
    case 't':
        return after_word(reader, at, "true");
    case 'f':
        return after_word(reader, at, "false");
    case 'n':
        return after_word(reader, at, "null");
    default:
        return after_number(reader, at);
    }
}

/* At the value of a key, from its opening quote on; `key` is what is between the quotes. */
static const uint8_t *after_key(struct reader *reader, const uint8_t *at, struct token *key)
{
    if (*at != '"')
        return fail(reader, at);
    key->start = at + 1;
    if (!(at = after_string(reader, at + 1)))
        return NULL;
    key->bytes = at - 1 - key->start;
    at = after_space(at);
    return *at == ':' ? after_space(at + 1) : fail(reader, at);
}

/* Behind a key without escapes, so that equal keys are equal bytes. */
static const uint8_t *after_plain_key(struct reader *reader, const uint8_t *at, struct token *key)
{
    const uint8_t *first = at;
    reader->escapes = 0;
    if (!(at = after_key(reader, at, key)))
        return NULL;
    return reader->escapes ? fail(reader, first) : at;
}

/* At the next item, or behind the closing bracket, from behind an item on. */
static const uint8_t *after_item(struct reader *reader, const uint8_t *at, char close, int *closed)
{
    at = after_space(at);
    *closed = *at == (uint8_t)close;
    if (*closed)
        return at + 1;
    return *at == ',' ? after_space(at + 1) : fail(reader, at);
}

/* Behind a value at which a string or number does not begin. */
RARE const uint8_t *after_other_value(struct reader *reader, const uint8_t *at, int depth);

static const uint8_t *after_value(struct reader *reader, const uint8_t *at, int depth)
{
    if (*at == '"')
        return after_string(reader, at + 1);
    return is_digit(*at) ? after_number(reader, at) : after_other_value(reader, at, depth);
}

RARE const uint8_t *after_other_value(struct reader *reader, const uint8_t *at, int depth)
{
    if (*at != '{' && *at != '[')
        return after_scalar(reader, at);
    if (depth == MOST_DEPTH)
        return fail(reader, at);
    int is_object = *at == '{', closed = 0;
    char close = is_object ? '}' : ']';
    struct token key;
    at = after_space(at + 1);
    if (*at == (uint8_t)close)
        return at + 1;
    while (!closed) {
        if (is_object && !(at = after_key(reader, at, &key)))
            return NULL;
        if (!(at = after_value(reader, at, depth + 1)) ||
            !(at = after_item(reader, at, close, &closed)))
            return NULL;
    }
    return at;
}

static int is_text(struct token token, const char *text, size_t bytes)
{
    return token.start && token.bytes == (int64_t)bytes &&
           memcmp(token.start, text, bytes) == 0;
}

#define IS(token, text) is_text(token, text, sizeof(text) - 1)

static int is_null(struct token token)
{
    return IS(token, "null");
}

/* Whether it is the string, as written. */
static int is_string(struct token token, const char *text, size_t bytes)
{
    return token.start && token.bytes == (int64_t)bytes + 2 && token.start[0] == '"' &&
           memcmp(token.start + 1, text, bytes) == 0;
}

struct category {
    const char *name;
    size_t bytes;
    int kind;
};

#define CATEGORY(name, kind) {name, sizeof(name) - 1, kind}

static const struct category CATEGORIES[] = {
    CATEGORY("kernel", KERNEL),
    CATEGORY("cuda_runtime", CALL),
    CATEGORY("cpu_op", OPERATOR),
    CATEGORY("ac2g", UNREAD),
    CATEGORY("python_function", PYTHON),
    CATEGORY("cuda_driver", CALL),
    CATEGORY("hip_runtime", CALL),
    CATEGORY("hip_driver", CALL),
    CATEGORY("user_annotation", ANNOTATION),
    CATEGORY("gpu_user_annotation", UNREAD),
    CATEGORY("gpu_memcpy", COPY),
    CATEGORY("gpu_memset", SET),
    CATEGORY("fwdbwd", UNREAD),
    CATEGORY("async_gpu", UNREAD),
    CATEGORY("async_cpu_to_gpu", UNREAD),
    CATEGORY("Kernel", KERNEL),
    CATEGORY("Runtime", CALL),
    CATEGORY("Operator", OPERATOR),
    CATEGORY("Memcpy", COPY),
    CATEGORY("Memset", SET),
};

static int kind_of(struct token category)
{
    for (size_t i = 0; i < sizeof CATEGORIES / sizeof *CATEGORIES; i++)
        if (is_string(category, CATEGORIES[i].name, CATEGORIES[i].bytes))
            return CATEGORIES[i].kind;
    return OTHER;
}

/* How an argument is read: an integer, one of 0 or more that fits int32, three of them, bytes, the
 * text itself; or the event is one of which Python reads more. */
enum { INTEGER, AMOUNT, TRIPLE, SIZE, TEXT, DETAIL };

struct argument {
    const char *key;
    int bytes;
    int form;
    int column;
};

#define ARGUMENT(key, form, column) {key, sizeof(key) - 1, form, column}
#define PLACE                                                                                      \
    ARGUMENT("device", INTEGER, DEVICE), ARGUMENT("context", AMOUNT, CONTEXT),                     \
        ARGUMENT("stream", INTEGER, STREAM), ARGUMENT("correlation", INTEGER, CORRELATION),        \
        ARGUMENT("graph node id", INTEGER, NODE)

static const struct argument OF_KERNEL[] = {
    PLACE,
    ARGUMENT("grid", TRIPLE, GRID),
    ARGUMENT("block", TRIPLE, BLOCK),
    ARGUMENT("registers per thread", AMOUNT, REGISTERS),
    ARGUMENT("shared memory", AMOUNT, SHARED),
    {NULL, 0, 0, 0},
};
static const struct argument OF_COPY[] = {PLACE, ARGUMENT("bytes", SIZE, BYTES), {NULL, 0, 0, 0}};
static const struct argument OF_CALL[] = {
    ARGUMENT("correlation", INTEGER, CALL_CORRELATION),
    ARGUMENT("grid", DETAIL, 0),
    ARGUMENT("size", DETAIL, 0),
    {NULL, 0, 0, 0},
};
static const struct argument OF_OPERATOR[] = {
    ARGUMENT("Input Dims", TEXT, 0),
    ARGUMENT("Collective name", DETAIL, 0),
    {NULL, 0, 0, 0},
};
static const struct argument OF_PYTHON[] = {
    ARGUMENT("Python id", INTEGER, PYTHON_ID),
    {NULL, 0, 0, 0},
};
static const struct argument OF_NOTHING[] = {{NULL, 0, 0, 0}};

static const struct argument *const ARGUMENTS[TABLES] = {
    OF_KERNEL, OF_COPY, OF_COPY, OF_CALL, OF_OPERATOR, OF_NOTHING, OF_PYTHON,
};

/* What is known of an event without arguments. */
static void clear_arguments(struct event *event)
{
    int64_t *values = event->values;
    if (event->kind == KERNEL || event->kind == COPY || event->kind == SET) {
        memset(values, 0, sizeof event->values);
        values[DEVICE] = values[STREAM] = values[CORRELATION] = values[NODE] = ABSENT;
        if (event->kind != KERNEL)
            values[BYTES] = -1;
    }
    else
        values[FIRST_ARGUMENT] = ABSENT;
}

/* An integer that a column can hold; what is a number of another kind is left to Python. */
static const uint8_t *after_integer(struct reader *reader, const uint8_t *at, int64_t *value)
{
    const uint8_t *first = at;
    int is_negative = *at == '-';
    int64_t number = 0;
    at += is_negative;
    const uint8_t *digits = at;
    while (is_digit(*at) && at - digits < SAFE_DIGITS)
        number = 10 * number + (*at++ - '0');
    if (at == digits || (*digits == '0' && at - digits > 1))
        return fail(reader, at == digits ? at : first);
    *value = is_negative ? -number : number;
    /* A digit, point or exponent behind it ends no value, so that the caller fails there. */
    return at;
}

static int64_t amount(int64_t value)
{
    return value < 0 || value > INT32_MAX ? 0 : value;
}

static const uint8_t *after_triple(struct reader *reader, const uint8_t *at, int64_t *values)
{
    if (*at != '[')
        return fail(reader, at);
    for (int place = 0; place < 3; place++) {
        int64_t value = 0;
        int closed = 0;
        if (!(at = after_integer(reader, after_space(at + 1), &value)))
            return NULL;
        values[place] = amount(value);
        at = after_space(at);
        closed = *at == (place < 2 ? ',' : ']');
        if (!closed)
            return fail(reader, at);
    }
    return at + 1;
}

static const uint8_t *after_argument(struct reader *reader, const uint8_t *at,
                                     const struct argument *wanted, struct event *event)
{
    const uint8_t *first = at;
    int64_t value = ABSENT;
    if (wanted->form == TEXT || wanted->form == DETAIL) {
        if (!(at = after_value(reader, at, 1)))
            return NULL;
        struct token whole = {first, at - first};
        if (wanted->form == TEXT)
            event->dims = whole;
        else
            event->has_details |= !is_null(whole);
        return at;
    }
    if (*at == 'n')
        return after_word(reader, at, "null");
    if (wanted->form == TRIPLE)
        return after_triple(reader, at, &event->values[wanted->column]);
    if (!(at = after_integer(reader, at, &value)))
        return NULL;
    if (wanted->form == AMOUNT)
        value = amount(value);
    else if (wanted->form == SIZE)
        value = value < -1 ? -1 : value > MOST_BYTES ? MOST_BYTES : value;
    event->values[wanted->column] = value;
    return at;
}

static int row_of(const struct argument *known, struct token key)
{
    for (int row = 0; known[row].key; row++)
        if (is_text(key, known[row].key, (size_t)known[row].bytes))
            return row;
    return UNKNOWN;
}

/* At the value of the next key, or behind the closing brace. The first follows an opening one. */
static const uint8_t *after_new_lead(struct reader *reader, const uint8_t *at, int is_first,
                                     const struct argument *known, int *meaning)
{
    struct token key;
    at = after_space(at);
    *meaning = CLOSED;
    if (*at == '}' && !is_first)
        return at + 1;
    if (*at != (is_first ? '{' : ','))
        return fail(reader, at);
    at = after_space(at + 1);
    if (*at == '}' && is_first)
        return at + 1;
    if (!(at = after_plain_key(reader, at, &key)))
        return NULL;
    *meaning = row_of(known, key);
    return at;
}

/* Whether it is what stands at a place with MOST_LEAD_BYTES behind it. */
USUAL int is_lead(const uint8_t *at, const struct lead *lead)
{
#if defined(__SSE2__)
    const __m128i *here = (const __m128i *)at, *there = (const __m128i *)lead->text;
    unsigned low = (unsigned)_mm_movemask_epi8(
        _mm_cmpeq_epi8(_mm_loadu_si128(here), _mm_loadu_si128(there)));
    unsigned high = (unsigned)_mm_movemask_epi8(
        _mm_cmpeq_epi8(_mm_loadu_si128(here + 1), _mm_loadu_si128(there + 1)));
    return ((uint64_t)~(low | high << 16) << (64 - lead->bytes)) == 0;
#else
    return memcmp(at, lead->text, (size_t)lead->bytes) == 0;
#endif
}

/* The same, kept for the next event. */
RARE const uint8_t *after_kept_lead(struct reader *reader, const uint8_t *at, struct lead *leads,
                                    int place, const struct argument *known, int *meaning)
{
    const uint8_t *first = at;
    at = after_new_lead(reader, at, place == 0, known, meaning);
    if (at && place < MOST_PLACES && at - first <= MOST_LEAD_BYTES) {
        struct lead *lead = &leads[place];
        memcpy(lead->text, first, (size_t)(at - first));
        lead->bytes = at - first;
        lead->meaning = *meaning;
    }
    return at;
}

/* The same. Most events of a kind are written alike: what stood in a place in the last one was
 * checked then. */
USUAL const uint8_t *after_lead(struct reader *reader, const uint8_t *at, struct lead *leads,
                                int place, const struct argument *known, int *meaning)
{
    const struct lead *lead = &leads[place];
    if (place < MOST_PLACES && lead->bytes && reader->end - at >= MOST_LEAD_BYTES &&
        is_lead(at, lead)) {
        *meaning = lead->meaning;
        at += lead->bytes;
        return lead->meaning == CLOSED ? at : after_space(at);
    }
    return after_kept_lead(reader, at, leads, place, known, meaning);
}

/* Arguments of a known kind of event. One that is there twice is left to Python. */
static const uint8_t *after_arguments(struct reader *reader, const uint8_t *at, struct event *event)
{
    const struct argument *known = ARGUMENTS[event->kind];
    struct lead *leads = reader->leads->arguments[event->kind];
    unsigned seen = 0;
    event->has_arguments = 1;
    clear_arguments(event);
    if (*at == 'n')
        return after_word(reader, at, "null");
    for (int place = 0;; place++) {
        const uint8_t *first = at;
        int row = UNKNOWN;
        if (!(at = after_lead(reader, at, leads, place, known, &row)) || row == CLOSED)
            return at;
        if (row >= 0 && seen & 1u << row)
            return fail(reader, first);
        seen |= row >= 0 ? 1u << row : 0;
        at = row >= 0 ? after_argument(reader, at, &known[row], event) : after_value(reader, at, 1);
        if (!at)
            return NULL;
    }
}

#define FIELD(key, field) {key, sizeof(key) - 1, 0, field}

static const struct argument KNOWN_FIELDS[] = {
    FIELD("ph", PH),   FIELD("cat", CAT), FIELD("name", EVENT_NAME), FIELD("pid", PID),
    FIELD("tid", TID), FIELD("ts", TS),   FIELD("dur", DUR),         FIELD("args", ARGS),
    {NULL, 0, 0, 0},
};

/* Behind the value of a field, which is then known. */
static const uint8_t *after_field(struct reader *reader, const uint8_t *at, int field,
                                  struct event *event)
{
    const uint8_t *first = at;
    reader->escapes = 0;
    if (field == ARGS && event->kind < TABLES)
        at = after_arguments(reader, at, event);
    else
        at = after_value(reader, at, 0);
    if (!at || field == UNKNOWN)
        return at;
    event->fields[field].start = first;
    event->fields[field].bytes = at - first;
    if ((field == CAT || field == PH) && reader->escapes)
        return fail(reader, first);
    if (field == CAT)
        event->kind = kind_of(event->fields[CAT]);
    return at;
}

/* Behind an event, whose fields are then known. */
static const uint8_t *after_event(struct reader *reader, const uint8_t *at, struct event *event)
{
    for (int field = 0; field < FIELDS; field++)
        event->fields[field].start = NULL;
    event->dims.start = NULL;
    event->kind = OTHER;
    event->has_details = event->has_arguments = 0;
    for (int place = 0;; place++) {
        const uint8_t *first = at;
        struct lead *leads = reader->leads->fields[event->kind];
        int field = UNKNOWN;
        if (!(at = after_lead(reader, at, leads, place, KNOWN_FIELDS, &field)) || field == CLOSED)
            return at;
        if (field >= 0 && event->fields[field].start)
            return fail(reader, first);
        if (!(at = after_field(reader, at, field, event)))
            return NULL;
    }
}

/* Nanoseconds of microseconds as written; 0 if it is anything but digits, a sign and a point. */
static int read_time(struct token token, int64_t *nanoseconds)
{
    const uint8_t *at = token.start, *end = at + token.bytes;
    if (!at)
        return 0;
    int is_negative = *at == '-', decimals = 0;
    at += is_negative;
    const uint8_t *first = at;
    int64_t value = 0;
    while (at < end && is_digit(*at))
        /* The remainder keeps a number that is too long, and refused, from overflowing. */
        value = 10 * (value % ((int64_t)1 << 58)) + (*at++ - '0');
    if (at == first || at - first > MOST_WHOLE_DIGITS ||
        (at - first == MOST_WHOLE_DIGITS && *first >= MOST_FIRST))
        return 0;
    if (at < end && *at == '.')
        for (at++; at < end && is_digit(*at) && decimals < 3; decimals++)
            value = 10 * value + (*at++ - '0');
    for (; decimals < 3; decimals++)
        value *= 10;
    if (at < end && is_digit(*at)) {
        if (is_negative)
            return 0;
        value += *at >= '5';
        while (at < end && is_digit(*at))
            at++;
    }
    *nanoseconds = is_negative ? -value : value;
    return at == end;
}

static int64_t within(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

/* The GPU and stream of its track, where the arguments do not name them. */
static int place_on_track(struct event *event)
{
    struct reader reader = {NULL, NULL, 0, NULL};
    int64_t *values = event->values;
    enum field fields[] = {PID, TID};
    int columns[] = {DEVICE, STREAM};
    for (int i = 0; i < 2; i++) {
        struct token token = event->fields[fields[i]];
        if (values[columns[i]] != ABSENT)
            continue;
        if (!token.start || after_integer(&reader, token.start, &values[columns[i]]) !=
                                token.start + token.bytes)
            return 0;
    }
    values[DEVICE] = amount(values[DEVICE]);
    if (values[STREAM] <= -((int64_t)1 << 31) || values[STREAM] >= (int64_t)1 << 31)
        values[STREAM] = 0;
    return 1;
}

static int64_t number_of(struct text_table *table, const uint8_t *text, int64_t bytes)
{
    int32_t number;
    return traceview_number_text(table, text, bytes, &number) ? -1 : number;
}

static int64_t thread_number(struct scan *scan, const struct event *event)
{
    uint8_t both[2 * MOST_OWNER_BYTES + 1];
    struct token pid = event->fields[PID], tid = event->fields[TID];
    if (!pid.start || !tid.start || pid.bytes > MOST_OWNER_BYTES || tid.bytes > MOST_OWNER_BYTES)
        return -1;
    memcpy(both, pid.start, (size_t)pid.bytes);
    both[pid.bytes] = 0;
    memcpy(both + pid.bytes + 1, tid.start, (size_t)tid.bytes);
    return number_of(scan->threads, both, pid.bytes + 1 + tid.bytes);
}

static const char *const WITH_WORK[] = {
    "aten::mm", "aten::addmm", "aten::bmm", "aten::baddbmm", "aten::linear", "aten::matmul",
    "aten::_scaled_mm",
};

static int has_work(struct token name)
{
    for (size_t i = 0; i < sizeof WITH_WORK / sizeof *WITH_WORK; i++)
        if (is_string(name, WITH_WORK[i], strlen(WITH_WORK[i])))
            return 1;
    return 0;
}

/* The number of the name as written; of an operator of matrices, with the sizes behind it. */
static int64_t name_number(struct scan *scan, const struct event *event)
{
    uint8_t both[64 + LONGEST_DIMS];
    struct token name = event->fields[EVENT_NAME], dims = event->dims;
    struct text_table *names = scan->names[event->kind];
    if (!name.start || *name.start != '"' || name.bytes > MOST_NAME_BYTES)
        return -1;
    if (event->kind != OPERATOR || !dims.start || dims.bytes > LONGEST_DIMS || !has_work(name))
        return number_of(names, name.start, name.bytes);
    memcpy(both, name.start, (size_t)name.bytes);
    memcpy(both + name.bytes, dims.start, (size_t)dims.bytes);
    return number_of(names, both, name.bytes + dims.bytes);
}

/* The event as a row of its table; 0 if it is left to Python. */
static int store_row(struct scan *scan, struct event *event)
{
    int table = event->kind, on_gpu = table <= SET;
    int64_t *values = event->values, start, length;
    if (!read_time(event->fields[TS], &start) || !read_time(event->fields[DUR], &length))
        return 0;
    values[START] = within(start, -FARTHEST_NS, FARTHEST_NS);
    values[END] = values[START] + within(length, 0, FARTHEST_NS);
    values[NAME] = name_number(scan, event);
    values[THREAD] = on_gpu ? 0 : thread_number(scan, event);
    if (values[NAME] < 0 || values[THREAD] < 0 || (on_gpu && !place_on_track(event)))
        return 0;
    if (table == PYTHON && values[PYTHON_ID] < -1)
        values[PYTHON_ID] = -1;
    scan->negative += !on_gpu && length < 0;
    int64_t *cell = scan->columns[table] + scan->rows[table]++;
    for (int column = 0; column < COLUMNS_OF[table]; column++, cell += scan->most_rows)
        *cell = values[column];
    return 1;
}

static void note(int64_t *spans, int64_t *count, const struct scan *scan, const uint8_t *start,
                 const uint8_t *end)
{
    int64_t *span = spans + 2 * (*count)++;
    span[0] = start - scan->text;
    span[1] = end - scan->text;
}

/* Keep an event that lies between two places; 0 if it is not as torch writes them. */
static int take(struct scan *scan, struct reader *reader, struct event *event, const uint8_t *start,
                const uint8_t *end)
{
    struct token ph = event->fields[PH];
    int is_complete = is_string(ph, "X", 1);
    if (event->kind == OTHER || (!is_complete && (!ph.start || *ph.start != '"')) ||
        is_string(ph, "M", 1)) {
        note(scan->other_spans, &scan->others, scan, start, end);
        return 1;
    }
    if (event->kind == UNREAD || !is_complete)
        return 1;
    if (!event->has_arguments) {
        clear_arguments(event);
        if (event->fields[ARGS].start && !after_arguments(reader, event->fields[ARGS].start, event))
            return 0;
    }
    if (!store_row(scan, event))
        return 0;
    if (event->has_details) {
        int64_t *of = scan->detail_spans + 4 * scan->details++;
        of[0] = event->kind;
        of[1] = scan->rows[event->kind] - 1;
        of[2] = start - scan->text;
        of[3] = end - scan->text;
    }
    return 1;
}

static int is_full(const struct scan *scan)
{
    int full = scan->others == scan->most_rows || scan->details == scan->most_rows;
    for (int table = 0; table < TABLES; table++)
        full |= scan->rows[table] == scan->most_rows;
    return full;
}

static int64_t stopped(const struct reader *reader)
{
    return reader->failed >= reader->end ? NEEDS_MORE : IS_ODD;
}

/* Whether the next event can be read; else why not. */
static int has_next(struct scan *scan, const uint8_t *start)
{
    if (is_full(scan))
        scan->stopped = IS_FULL;
    else if (scan->at == scan->limit)
        scan->stopped = NEEDS_MORE;
    else if (*start == ']')
        scan->stopped = ENDED;
    else
        return 1;
    return 0;
}

/* Read events from `at` on, each with what follows it, until one of the reasons to stop. */
EXPORTED void traceview_scan_events(struct scan *scan)
{
    struct leads leads;
    struct reader reader = {scan->text + scan->bytes, NULL, 0, &leads};
    struct event event;
    const uint8_t *next = scan->text + scan->at, *limit = scan->text + scan->limit;
    scan->events = scan->negative = scan->others = scan->details = 0;
    memset(scan->rows, 0, sizeof scan->rows);
    memset(&leads, 0, sizeof leads);
    for (;;) {
        const uint8_t *start = after_space(next), *end;
        int closed = 0;
        scan->at = next - scan->text;
        if (!has_next(scan, start))
            return;
        if (!(end = after_event(&reader, start, &event)) ||
            !(next = after_item(&reader, end, ']', &closed))) {
            scan->stopped = stopped(&reader);
            return;
        }
        /* The end of the list is left to Python. */
        next -= closed;
        scan->stopped = next > limit ? NEEDS_MORE : IS_ODD;
        if (next > limit || !take(scan, &reader, &event, start, end))
            return;
        scan->events++;
    }
}
