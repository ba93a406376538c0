/* Scan the events of a torch.profiler Chrome trace into columns of numbers: events.py and columns.py,
 * compiled.
 *
 * The text is untrusted: see json.h. The scan reads events of the types that torch writes; at
 * anything else it stops, and Python decides what that means. Called through ctypes by scanner.py,
 * which mirrors `struct scan`. Uses no Python and no globals, so several threads may scan at once.
 */
#include "../../../base/compiled/texts.h"
#include "json.h"

#include <stddef.h>
#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Why a scan stopped: an event continues beyond the text or the limit, the list of events ended, a
 * column is full, or an event is not as torch writes them. */
enum { NEEDS_MORE, ENDED, IS_FULL, IS_ODD };

/* Kinds of events: those with a table, those that nothing reads, and those left to Python. */
enum { KERNEL, COPY, SET, CALL, OPERATOR, ANNOTATION, PYTHON, TABLES, UNREAD = TABLES, OTHER };

/* Columns: those that all tables share, then those of arguments. */
enum { START, END, NAME, THREAD, FIRST_ARGUMENT };
enum { DEVICE = FIRST_ARGUMENT, CONTEXT, STREAM, CORRELATION, NODE, BYTES, GRID = BYTES };
enum { BLOCK = GRID + 3, REGISTERS = BLOCK + 3, SHARED, COLUMNS };
enum { CALL_CORRELATION = FIRST_ARGUMENT, PYTHON_ID = FIRST_ARGUMENT };

static const int COLUMNS_OF[TABLES] = {
    COLUMNS, BYTES + 1, BYTES + 1, FIRST_ARGUMENT + 1, FIRST_ARGUMENT, FIRST_ARGUMENT,
    FIRST_ARGUMENT + 1,
};

enum { MOST_LEAD_BYTES = 32, MOST_REPEAT_BYTES = 48, MOST_PLACES = 24, MOST_MISSES = 8 };
enum { MOST_OWNER_BYTES = 64, MOST_NAME_BYTES = 1 << 16, LONGEST_DIMS = 400 };
/* So many digits always fit int64: as they are, and as microseconds converted to nanoseconds. */
enum { SAFE_DIGITS = 18, MOST_WHOLE_DIGITS = 16, MOST_FIRST = '4' };

#define ABSENT INT64_MIN
#define MOST_BYTES ((int64_t)1 << 50)
#define FARTHEST_NS ((int64_t)1 << 61)

/* Input and output of a scan. Column c of row r of a table is columns[c * most_rows + r]. */
struct scan {
    const uint8_t *text;
    int64_t bytes;
    int64_t limit;    /* no event and comma is read beyond this position */
    int64_t at;       /* where to begin; after the scan, behind the last comma */
    int64_t stopped;  /* why */
    int64_t events;   /* number of events read */
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

/* The text between two values: comma, spaces and key. `meaning` is the row of the key in the table
 * of known keys, UNKNOWN, or CLOSED where the object ends. */
enum { UNKNOWN = -1, CLOSED = -2 };
struct lead {
    uint8_t text[MOST_LEAD_BYTES];
    int64_t bytes;
    int meaning;
};

/* A value and the lead behind it. Most values of a kind of event are those of the last one: then
 * both are skipped at once. `key` is the row of the value's key, `meaning` that of the lead, and
 * `numbers` are what the value was read as. */
struct repeat {
    uint8_t text[MOST_REPEAT_BYTES];
    int64_t bytes;
    int64_t value_bytes;
    int key;
    int meaning;
    int misses;
    int64_t numbers[3];
};

/* Leads and values of the last event of each kind, by position; an event is OTHER until its category
 * is read. */
struct leads {
    struct lead fields[OTHER + 1][MOST_PLACES];
    struct lead arguments[TABLES][MOST_PLACES];
    struct repeat field_values[OTHER + 1][MOST_PLACES];
    struct repeat argument_values[TABLES][MOST_PLACES];
};

/* The event being read. */
struct event {
    struct leads *leads;
    struct token fields[FIELDS];
    struct token dims;
    int kind;
    int has_details;
    int has_arguments; /* in `values` */
    int64_t values[COLUMNS];
    /* The last event of a thread: process, thread and the number of both. */
    struct token last_pid, last_tid;
    int64_t last_thread;
};

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

/* Forms of arguments: an integer, a non-negative int32, three of these, a size in bytes, the text
 * itself, or DETAIL: Python reads the rest of such an event. */
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
static const struct argument OF_COPY[] = {
    PLACE,
    ARGUMENT("bytes", SIZE, BYTES),
    ARGUMENT("copy kind", DETAIL, 0),
    {NULL, 0, 0, 0},
};
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

/* Set all arguments to absent. */
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

/* Read an integer that fits a column. Refuses other numbers. */
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

/* Skip the comma and the next key, or the closing brace. Before the first key is an opening brace. */
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

#if defined(__SSE2__)
/* Which of 16 bytes are equal, a bit each. */
USUAL uint64_t equal_bytes(const uint8_t *at, const uint8_t *text)
{
    __m128i here = _mm_loadu_si128((const __m128i *)at);
    return (unsigned)_mm_movemask_epi8(
        _mm_cmpeq_epi8(here, _mm_loadu_si128((const __m128i *)text)));
}
#endif

/* Whether the text begins with the lead. MOST_LEAD_BYTES can be read from `at`. */
USUAL int is_lead(const uint8_t *at, const struct lead *lead)
{
#if defined(__SSE2__)
    uint64_t equal = equal_bytes(at, lead->text) | equal_bytes(at + 16, lead->text + 16) << 16;
    return ~equal << (64 - lead->bytes) == 0;
#else
    return memcmp(at, lead->text, (size_t)lead->bytes) == 0;
#endif
}

/* Whether the text begins with the value of this key and its lead. */
USUAL int is_repeated(const struct reader *reader, const uint8_t *at, int key,
                      struct repeat *repeat)
{
    if (!repeat->bytes || repeat->key != key || reader->end - at < MOST_REPEAT_BYTES)
        return 0;
#if defined(__SSE2__)
    uint64_t equal = equal_bytes(at, repeat->text) | equal_bytes(at + 16, repeat->text + 16) << 16 |
                     equal_bytes(at + 32, repeat->text + 32) << 32;
    int is_equal = ~equal << (64 - repeat->bytes) == 0;
#else
    int is_equal = memcmp(at, repeat->text, (size_t)repeat->bytes) == 0;
#endif
    repeat->misses = is_equal ? 0 : repeat->misses + 1;
    return is_equal;
}

/* Keep a value and the lead behind it. One that has changed often in a row is not compared again. */
USUAL void keep(const struct reader *reader, struct repeat *repeat, const uint8_t *value,
                const uint8_t *lead, const uint8_t *end, int key, int meaning)
{
    repeat->bytes = 0;
    if (repeat->misses >= MOST_MISSES || end - value > MOST_REPEAT_BYTES ||
        reader->end - value < MOST_REPEAT_BYTES)
        return;
    memcpy(repeat->text, value, MOST_REPEAT_BYTES);
    repeat->bytes = end - value;
    repeat->value_bytes = lead - value;
    repeat->key = key;
    repeat->meaning = meaning;
}

/* after_new_lead, which keeps the lead for the next event of the kind. */
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

/* Skip a lead. Most events of a kind are written alike, so compare with that of the last one first. */
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

/* Set an argument to what its repeated value was read as. */
USUAL void repeat_argument(const struct argument *wanted, const struct repeat *repeat,
                           const uint8_t *value, struct event *event)
{
    if (wanted->form == TEXT) {
        struct token whole = {value, repeat->value_bytes};
        event->dims = whole;
        return;
    }
    for (int number = 0; number < (wanted->form == TRIPLE ? 3 : 1); number++)
        event->values[wanted->column + number] = repeat->numbers[number];
}

/* Keep an argument. What Python reads of an event it reads of each. */
USUAL void keep_argument(struct repeat *repeat, const struct argument *wanted,
                         const struct event *event)
{
    if (wanted->form == DETAIL)
        repeat->bytes = 0;
    else if (wanted->form != TEXT)
        for (int number = 0; number < (wanted->form == TRIPLE ? 3 : 1); number++)
            repeat->numbers[number] = event->values[wanted->column + number];
}

/* Read the arguments of a known kind of event. Refuses a key that occurs twice. */
static const uint8_t *after_arguments(struct reader *reader, const uint8_t *at, struct event *event)
{
    const struct argument *known = ARGUMENTS[event->kind];
    struct lead *leads = event->leads->arguments[event->kind];
    struct repeat *values = event->leads->argument_values[event->kind];
    unsigned seen = 0;
    int row = UNKNOWN;
    event->has_arguments = 1;
    clear_arguments(event);
    if (*at == 'n')
        return after_word(reader, at, "null");
    const uint8_t *lead = at;
    if (!(at = after_lead(reader, at, leads, 0, known, &row)))
        return NULL;
    for (int place = 0; row != CLOSED; place++) {
        struct repeat *repeat = &values[place < MOST_PLACES ? place : MOST_PLACES - 1];
        const uint8_t *value = at;
        int next = UNKNOWN;
        if (row >= 0 && seen & 1u << row)
            return fail(reader, lead);
        seen |= row >= 0 ? 1u << row : 0;
        if (is_repeated(reader, at, row, repeat)) {
            if (row >= 0)
                repeat_argument(&known[row], repeat, value, event);
            lead = at + repeat->value_bytes;
            at += repeat->bytes;
            row = repeat->meaning;
            at = row == CLOSED ? at : after_space(at);
            continue;
        }
        at = row >= 0 ? after_argument(reader, at, &known[row], event) : after_value(reader, at, 1);
        if (!(lead = at) || !(at = after_lead(reader, at, leads, place + 1, known, &next)))
            return NULL;
        keep(reader, repeat, value, lead, at, row, next);
        if (row >= 0)
            keep_argument(repeat, &known[row], event);
        row = next;
    }
    return at;
}

#define FIELD(key, field) {key, sizeof(key) - 1, 0, field}

static const struct argument KNOWN_FIELDS[] = {
    FIELD("ph", PH),   FIELD("cat", CAT), FIELD("name", EVENT_NAME), FIELD("pid", PID),
    FIELD("tid", TID), FIELD("ts", TS),   FIELD("dur", DUR),         FIELD("args", ARGS),
    {NULL, 0, 0, 0},
};

/* Read the value of a field. */
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

/* Read the fields of an event. */
static const uint8_t *after_event(struct reader *reader, const uint8_t *at, struct event *event)
{
    for (int field = 0; field < FIELDS; field++)
        event->fields[field].start = NULL;
    event->dims.start = NULL;
    event->kind = OTHER;
    event->has_details = event->has_arguments = 0;
    const uint8_t *lead = at;
    int field = UNKNOWN;
    if (!(at = after_lead(reader, at, event->leads->fields[OTHER], 0, KNOWN_FIELDS, &field)))
        return NULL;
    for (int place = 0; field != CLOSED; place++) {
        struct repeat *values = event->leads->field_values[event->kind];
        struct repeat *repeat = &values[place < MOST_PLACES ? place : MOST_PLACES - 1];
        const uint8_t *value = at;
        int next = UNKNOWN;
        if (field >= 0 && event->fields[field].start)
            return fail(reader, lead);
        if (is_repeated(reader, at, field, repeat)) {
            struct token whole = {value, repeat->value_bytes};
            if (field >= 0)
                event->fields[field] = whole;
            lead = at + repeat->value_bytes;
            at += repeat->bytes;
            field = repeat->meaning;
            at = field == CLOSED ? at : after_space(at);
            continue;
        }
        if (!(at = lead = after_field(reader, at, field, event)) ||
            !(at = after_lead(reader, at, event->leads->fields[event->kind], place + 1, KNOWN_FIELDS,
                              &next)))
            return NULL;
        /* These are more than their text. */
        if (field != CAT && field != ARGS)
            keep(reader, repeat, value, lead, at, field, next);
        field = next;
    }
    return at;
}

/* Convert microseconds, as written, to nanoseconds. Returns 0 unless they are digits with an
 * optional sign and point. */
static int read_time(struct token token, int64_t *nanoseconds)
{
    if (!token.start)
        return 0;
    const uint8_t *at = token.start, *end = at + token.bytes;
    int is_negative = *at == '-', decimals = 0;
    at += is_negative;
    const uint8_t *first = at;
    int64_t value = 0;
    while (at < end && is_digit(*at))
        /* The remainder avoids overflow in a number that is too long and refused below. */
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

/* Take device and stream from pid and tid where the arguments lack them. */
static int place_on_track(struct event *event)
{
    struct reader reader = {NULL, NULL, 0};
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

static int is_same(struct token one, struct token other)
{
    if (!other.start || one.bytes != other.bytes)
        return 0;
    for (int64_t byte = 0; byte < one.bytes; byte++)
        if (one.start[byte] != other.start[byte])
            return 0;
    return 1;
}

static int64_t thread_number(struct scan *scan, struct event *event)
{
    uint8_t both[2 * MOST_OWNER_BYTES + 1];
    struct token pid = event->fields[PID], tid = event->fields[TID];
    if (pid.start && tid.start && is_same(pid, event->last_pid) && is_same(tid, event->last_tid))
        return event->last_thread;
    if (!pid.start || !tid.start || pid.bytes > MOST_OWNER_BYTES || tid.bytes > MOST_OWNER_BYTES)
        return -1;
    memcpy(both, pid.start, (size_t)pid.bytes);
    both[pid.bytes] = 0;
    memcpy(both + pid.bytes + 1, tid.start, (size_t)tid.bytes);
    event->last_pid = pid;
    event->last_tid = tid;
    event->last_thread = number_of(scan->threads, both, pid.bytes + 1 + tid.bytes);
    return event->last_thread;
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

/* The number of the name as written; a GEMM operator's name is followed by its input sizes. */
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

/* Append the event to its table. Returns 0 if it is left to Python. */
static int store_row(struct scan *scan, struct event *event)
{
    int table = event->kind, on_gpu = table <= SET;
    int64_t *values = event->values, start, length;
    if (!read_time(event->fields[TS], &start) || !read_time(event->fields[DUR], &length))
        return 0;
    values[START] = within(start, -FARTHEST_NS, FARTHEST_NS);
    values[END] = values[START] + within(length, -FARTHEST_NS, FARTHEST_NS);
    values[NAME] = name_number(scan, event);
    values[THREAD] = on_gpu ? 0 : thread_number(scan, event);
    if (values[NAME] < 0 || values[THREAD] < 0 || (on_gpu && !place_on_track(event)))
        return 0;
    if (table == PYTHON && values[PYTHON_ID] < -1)
        values[PYTHON_ID] = -1;
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

/* Store the event between two positions. Returns 0 if it is not as torch writes them. */
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
    /* A copy whose direction is no part of its name. */
    if (event->has_details && event->kind == COPY) {
        note(scan->other_spans, &scan->others, scan, start, end);
        return 1;
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

/* Whether the next event can be read; if not, sets `stopped`. */
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

/* Read events from `at` on, each with its comma, until there is a reason to stop. */
EXPORTED void traceview_scan_events(struct scan *scan)
{
    struct leads leads;
    struct reader reader = {scan->text + scan->bytes, NULL, 0};
    struct event event = {.leads = &leads};
    const uint8_t *next = scan->text + scan->at, *limit = scan->text + scan->limit;
    scan->events = scan->others = scan->details = 0;
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
        /* Python reads the end of the list. */
        next -= closed;
        scan->stopped = next > limit ? NEEDS_MORE : IS_ODD;
        if (next > limit || !take(scan, &reader, &event, start, end))
            return;
        scan->events++;
    }
}
