/* The rows of a few leaf pages of an SQLite table, column by column.
 *
 * The format is that of https://www.sqlite.org/fileformat2.html. The pages are untrusted: nothing
 * is read outside the usable bytes of a page, and whatever is unusual is declined, with the reason,
 * so that SQLite itself decides what it means. Loaded with ctypes by decoder.py, whose
 * structures mirror those of this file; knows nothing of Python, and may run in several threads.
 */
#include <stdint.h>
#include <string.h>

#ifdef _WIN32
#define EXPORTED __declspec(dllexport)
#else
#define EXPORTED __attribute__((visibility("default")))
#endif

/* Incremented with every change of the interface; library.py refuses any other number. */
EXPORTED const int64_t traceview_interface = 7;

enum { LEAF = 0x0D, LEAF_HEADER_BYTES = 8 };
/* A cell takes 4 bytes or more and its pointer 2; a free block has a header of 4 bytes. */
enum { LEAST_CELL_BYTES = 4, POINTER_BYTES = 2, FREE_HEADER_BYTES = 4 };
/* Serial types of a column; from FIRST_TEXT on, odd types are texts. */
enum { NULL_TYPE = 0, LAST_INTEGER = 6, REAL = 7, ZERO = 8, ONE = 9, FIRST_BLOB = 12, FIRST_TEXT };
enum { MOST_HEADER_BYTES = 127, LOCAL_LESS_THAN_USABLE = 35 };
/* Far beyond what happens by chance in a table that is at most half full. */
enum { MOST_PROBES = 512 };

#define RESERVED INT64_MAX
static const int64_t BYTES_OF_TYPE[FIRST_BLOB] = {0, 1, 2, 3, 4, 6, 8, 8, 0, 0, RESERVED, RESERVED};

/* Reasons to decline. */
static const char NO_LEAF[] = "a page is not a table leaf";
static const char OUTSIDE_CHUNK[] = "a page lies outside its chunk";
static const char NO_CELLS[] = "a page has no rows";
static const char TOO_MANY_CELLS[] = "a page holds more cells than fit";
static const char TOO_MANY_ROWS[] = "a chunk holds more rows than were counted";
static const char CELL_OUTSIDE[] = "a cell lies outside its page";
static const char ROW_OUTSIDE[] = "a row lies outside its page";
static const char OUT_OF_ORDER[] = "rows are out of order";
static const char WRONG_SPACE[] = "cells and free space do not fill a page";
static const char ROW_TOO_LONG[] = "a row is longer than a page";
static const char OVERFLOWING[] = "a row reaches into overflow pages";
static const char HEADER_TOO_LONG[] = "a header is longer than expected";
static const char HEADER_UNENDED[] = "a header does not end where it should";
static const char TYPE_RESERVED[] = "a type is reserved";
static const char WRONG_LENGTH[] = "a row is not as long as its header says";
static const char OLD_ROW[] = "a row is older than a column and takes its default";
static const char NO_INTEGER[] = "a column of integers holds something else";
static const char NO_TEXT[] = "a text column holds something else";
static const char COLLISIONS[] = "texts that are made to collide";

/* Pages in memory, and where each of them begins. */
struct chunk {
    const uint8_t *content;
    int64_t bytes;
    const int64_t *starts;
    int64_t pages;
    int64_t usable_bytes;
};

/* A wanted column: its index in the record, and buffers for all rows of the chunk.
 *
 * The values of a text column are codes, -1 for NULL; the text of code i is at text_starts[i] of
 * the chunk. `slots` is a hash table; its size is a power of two of at least twice the rows.
 */
struct column {
    int64_t place;
    int64_t is_text;
    int64_t *values;      /* 0 where NULL */
    uint8_t *null;        /* written only if there is a NULL */
    int64_t nulls;        /* number of NULLs */
    int64_t least;        /* minimum of the values, including those at NULLs */
    int64_t greatest;
    int64_t *text_starts;
    int64_t *text_bytes;
    int64_t texts;        /* number of distinct texts */
    int32_t *slots;
    int64_t slot_count;
};

/* The record in a cell: a header of types, then the values; and the number of the row. */
struct record {
    const uint8_t *header;
    int64_t header_bytes;
    int64_t bytes;
    int64_t row;
};

/* A value in a record: its type, where it begins in the record, and its length. */
struct field {
    uint64_t type;
    int64_t start;
    int64_t bytes;
};

/* What the header of a record says of each wanted column. Rows often share it with the row before. */
struct layout {
    struct record record;
    struct field fields[MOST_HEADER_BYTES];
};

static int64_t big_endian_2(const uint8_t *at)
{
    return (int64_t)at[0] << 8 | at[1];
}

static uint64_t big_endian_8(const uint8_t *at)
{
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    /* Compilers do not turn the loop below into one load; most of the time is spent here. */
    uint64_t value;
    memcpy(&value, at, sizeof value);
    return __builtin_bswap64(value);
#else
    uint64_t value = 0;
    for (int i = 0; i < 8; i++)
        value = value << 8 | at[i];
    return value;
#endif
}

static const char *check_page(const struct chunk *chunk, int64_t number)
{
    int64_t start = chunk->starts[number];
    if (start < 0 || chunk->usable_bytes < LEAF_HEADER_BYTES ||
        start > chunk->bytes - chunk->usable_bytes)
        return OUTSIDE_CHUNK;
    const uint8_t *page = chunk->content + start;
    if (page[0] != LEAF)
        return NO_LEAF;
    int64_t cells = big_endian_2(page + 3);
    /* Only the root of a table may be empty, and that one is not decoded. */
    if (cells == 0)
        return NO_CELLS;
    if (cells > (chunk->usable_bytes - LEAF_HEADER_BYTES) / (LEAST_CELL_BYTES + POINTER_BYTES))
        return TOO_MANY_CELLS;
    return NULL;
}

/* The bytes of the cells by what the header says: all from the first cell on that are not free.
 * -1 if the header is damaged. */
static int64_t bytes_of_cells(const uint8_t *page, int64_t usable)
{
    /* 0 stands for 65,536. */
    int64_t first = ((big_endian_2(page + 5) - 1) & 0xFFFF) + 1;
    int64_t taken = usable - first - page[7], end = first;
    if (first < LEAF_HEADER_BYTES + POINTER_BYTES * big_endian_2(page + 3))
        return -1;
    for (int64_t at = big_endian_2(page + 1); at; at = big_endian_2(page + at)) {
        if (at < end || at > usable - FREE_HEADER_BYTES)
            return -1;
        int64_t bytes = big_endian_2(page + at + 2);
        taken -= bytes;
        end = at + FREE_HEADER_BYTES;
    }
    return taken;
}

/* The record of the cell at `at`: the varints of its length and rowid come before. */
static const char *find_record(const uint8_t *page, int64_t at, int64_t usable, struct record *found)
{
    int64_t bytes = 0;
    int read = 0;
    uint8_t byte;
    do {
        if (at >= usable)
            return ROW_OUTSIDE;
        if (read++ == 3)
            return ROW_TOO_LONG;
        byte = page[at++];
        bytes = bytes << 7 | (byte & 0x7F);
    } while (byte >= 0x80);
    read = 0;
    uint64_t row = 0;
    do {
        if (at >= usable)
            return ROW_OUTSIDE;
        byte = page[at++];
        row = ++read == 9 ? row << 8 | byte : row << 7 | (byte & 0x7F);
    } while (byte >= 0x80 && read < 9);
    found->row = (int64_t)row;
    if (bytes > usable - LOCAL_LESS_THAN_USABLE)
        return OVERFLOWING;
    if (bytes < 1 || bytes > usable - at)
        return ROW_OUTSIDE;
    found->header = page + at;
    found->header_bytes = page[at];
    found->bytes = bytes;
    if (found->header_bytes > MOST_HEADER_BYTES || found->header_bytes > bytes)
        return HEADER_TOO_LONG;
    return found->header_bytes ? NULL : OLD_ROW;
}

/* Read the rest of a type (a varint) from its second byte on; NULL if it is not terminated. */
static const uint8_t *long_type(const uint8_t *at, const uint8_t *end, uint64_t *type)
{
    uint64_t value = *type & 0x7F;
    while (at < end && value >> 32 == 0) {
        value = value << 7 | (*at & 0x7F);
        if (*at++ < 0x80) {
            *type = value;
            return at;
        }
    }
    return NULL;
}

static void store_null(struct column *column, int64_t row, int64_t rows)
{
    if (column->nulls++ == 0)
        memset(column->null, 0, (size_t)rows);
    column->null[row] = 1;
    column->values[row] = column->is_text ? -1 : 0;
}

/* The value that ends before `end`. At least 8 bytes of its page, or of headers, precede `end`. */
static int64_t integer(const uint8_t *end, int64_t bytes, int64_t type)
{
    int shift = bytes ? (int)(64 - 8 * bytes) : 0;
    int64_t value = (int64_t)(big_endian_8(end - 8) << shift) >> shift;
    return type < ZERO ? value : type - ZERO;
}

static uint64_t hash_of(const uint8_t *text, int64_t bytes)
{
    const uint64_t mix = 0x9E3779B97F4A7C15u;
    uint64_t hash = (uint64_t)bytes * mix;
    for (int64_t at = 0; at < bytes; at += 8) {
        uint64_t word = 0;
        memcpy(&word, text + at, bytes - at < 8 ? (size_t)(bytes - at) : 8);
        hash = (hash ^ word) * mix;
        hash ^= hash >> 32;
    }
    return hash * mix;
}

/* The code of a text, which is added if new; -1 after too many probes. */
static int64_t code_of(struct column *column, const uint8_t *content, int64_t start, int64_t bytes)
{
    uint64_t mask = (uint64_t)column->slot_count - 1;
    uint64_t slot = hash_of(content + start, bytes) >> 20;
    for (int probe = 0; probe < MOST_PROBES; probe++, slot++) {
        int32_t code = column->slots[slot & mask];
        if (code < 0) {
            code = (int32_t)column->texts++;
            column->slots[slot & mask] = code;
            column->text_starts[code] = start;
            column->text_bytes[code] = bytes;
            return code;
        }
        if (column->text_bytes[code] == bytes &&
            memcmp(content + column->text_starts[code], content + start, (size_t)bytes) == 0)
            return code;
    }
    return -1;
}

static const char *store(struct column *column, int64_t row, int64_t rows, uint64_t type,
                         const struct chunk *chunk, const uint8_t *value, int64_t bytes)
{
    if (type == NULL_TYPE) {
        store_null(column, row, rows);
        return NULL;
    }
    if (column->is_text) {
        if (type < FIRST_TEXT || type % 2 == 0)
            return NO_TEXT;
        column->values[row] = code_of(column, chunk->content, value - chunk->content, bytes);
        return column->values[row] < 0 ? COLLISIONS : NULL;
    }
    if (type > ONE || type == REAL)
        return NO_INTEGER;
    column->values[row] = integer(value + bytes, bytes, (int64_t)type);
    return NULL;
}

/* Read a header: the type and place of each wanted value. */
static const char *read_header(const struct record *record, const struct column *columns,
                               int64_t count, struct layout *layout)
{
    const uint8_t *at = record->header + 1, *header_end = record->header + record->header_bytes;
    int64_t start = record->header_bytes, wanted = 0;
    for (int64_t place = 0; at < header_end; place++) {
        uint64_t type = *at++;
        if (type >= 0x80 && !(at = long_type(at, header_end, &type)))
            return HEADER_UNENDED;
        int64_t bytes = type < FIRST_BLOB ? BYTES_OF_TYPE[type] : (int64_t)(type - FIRST_BLOB) / 2;
        if (bytes > record->bytes - start)
            return bytes == RESERVED ? TYPE_RESERVED : WRONG_LENGTH;
        if (wanted < count && columns[wanted].place == place)
            layout->fields[wanted++] = (struct field){type, start, bytes};
        start += bytes;
    }
    layout->record = *record;
    return start != record->bytes ? WRONG_LENGTH : wanted < count ? OLD_ROW : NULL;
}

static int has_layout(const struct record *record, const struct layout *layout)
{
    const struct record *known = &layout->record;
    return record->bytes == known->bytes && record->header_bytes == known->header_bytes &&
           memcmp(record->header, known->header, (size_t)record->header_bytes) == 0;
}

static const char *decode_row(const struct chunk *chunk, const struct record *record,
                              struct column *columns, int64_t count, int64_t row, int64_t rows,
                              struct layout *layout)
{
    const char *reason = NULL;
    if (!has_layout(record, layout))
        reason = read_header(record, columns, count, layout);
    for (int64_t i = 0; i < count && !reason; i++) {
        const struct field *field = &layout->fields[i];
        reason = store(&columns[i], row, rows, field->type, chunk, record->header + field->start,
                       field->bytes);
    }
    return reason;
}

static const char *decode_page(const struct chunk *chunk, const uint8_t *page,
                               struct column *columns, int64_t count, int64_t first, int64_t rows,
                               struct layout *layout)
{
    int64_t cells = big_endian_2(page + 3), usable = chunk->usable_bytes;
    int64_t unseen = bytes_of_cells(page, usable);
    for (int64_t cell = 0; cell < cells; cell++) {
        struct record record;
        int64_t at = big_endian_2(page + LEAF_HEADER_BYTES + 2 * cell);
        if (at < LEAF_HEADER_BYTES + 2 * cells || at >= usable)
            return CELL_OUTSIDE;
        const char *reason = find_record(page, at, usable, &record);
        if (!reason && first + cell && record.row <= layout->record.row)
            return OUT_OF_ORDER;
        if (!reason)
            reason = decode_row(chunk, &record, columns, count, first + cell, rows, layout);
        if (reason)
            return reason;
        int64_t bytes = record.header + record.bytes - (page + at);
        unseen -= bytes < LEAST_CELL_BYTES ? LEAST_CELL_BYTES : bytes;
        layout->record.row = record.row;
    }
    return unseen ? WRONG_SPACE : NULL;
}

static void find_range(struct column *column, int64_t rows)
{
    int64_t least = rows ? column->values[0] : 0, greatest = least;
    for (int64_t row = 1; row < rows; row++) {
        int64_t value = column->values[row];
        least = value < least ? value : least;
        greatest = value > greatest ? value : greatest;
    }
    column->least = least;
    column->greatest = greatest;
}

/* The number of rows in the pages. Like decode, returns NULL, or the reason to decline. */
EXPORTED const char *traceview_count_rows(const struct chunk *chunk, int64_t *rows)
{
    *rows = 0;
    for (int64_t number = 0; number < chunk->pages; number++) {
        const char *reason = check_page(chunk, number);
        if (reason)
            return reason;
        *rows += big_endian_2(chunk->content + chunk->starts[number] + 3);
    }
    return NULL;
}

/* Fill the columns, which are given in the order of their places. */
EXPORTED const char *traceview_decode(const struct chunk *chunk, struct column *columns,
                                      int64_t count, int64_t rows)
{
    for (int64_t i = 0; i < count; i++) {
        columns[i].nulls = columns[i].texts = 0;
        if (columns[i].is_text)
            memset(columns[i].slots, -1, (size_t)columns[i].slot_count * sizeof(int32_t));
    }
    struct layout layout = {{NULL, 0, 0, 0}, {{0, 0, 0}}};
    int64_t done = 0;
    for (int64_t number = 0; number < chunk->pages; number++) {
        const char *reason = check_page(chunk, number);
        if (reason)
            return reason;
        const uint8_t *page = chunk->content + chunk->starts[number];
        int64_t cells = big_endian_2(page + 3);
        if (cells > rows - done)
            return TOO_MANY_ROWS;
        reason = decode_page(chunk, page, columns, count, done, rows, &layout);
        if (reason)
            return reason;
        done += cells;
    }
    for (int64_t i = 0; i < count; i++)
        find_range(&columns[i], done);
    return NULL;
}
