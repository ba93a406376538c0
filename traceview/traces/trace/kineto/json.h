/* JSON text, read by functions that return the position after what they read, or NULL.
 *
 * The text is untrusted and ends with a NUL, which stops every loop: JSON has none. What the
 * functions accept is valid JSON; some valid JSON they refuse (half a surrogate pair, numbers that
 * may exceed a double, values nested too deep), so that a caller can leave it to another decoder.
 * Included by one source, for which the compiler inlines them.
 */
#ifndef TRACEVIEW_JSON_H
#define TRACEVIEW_JSON_H

#include <stdint.h>
#include <string.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* USUAL functions run for nearly every value and are inlined; RARE ones stay out of line. */
#ifdef __GNUC__
#define USUAL static inline __attribute__((always_inline))
#define RARE static __attribute__((noinline))
#else
#define USUAL static inline
#define RARE static
#endif

/* A number with more digits or a larger exponent may exceed a double. */
enum { MOST_NUMBER_BYTES = 64, MOST_EXPONENT_DIGITS = 2, MOST_DEPTH = 64 };

/* A part of the text. `start` is NULL if there is none; `bytes` is then undefined. */
struct token {
    const uint8_t *start;
    int64_t bytes;
};

/* `failed` is where reading failed: `end` or later if the text merely breaks off. `escapes` counts
 * the backslashes read so far. */
struct reader {
    const uint8_t *end;
    const uint8_t *failed;
    int escapes;
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

/* The first byte that is a quote, backslash, control character or beyond ASCII.
 *
 * Compares 16 bytes at a time, as most of a trace is keys and names.
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

/* Skip a UTF-8 character beyond ASCII. */
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

/* Skip an escape whose backslash has been read. Refuses surrogates. */
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

/* Skip the rest of a string from its first byte that is not plain. */
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

/* Skip a string whose opening quote has been read. */
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

/* Skip a key and its colon; `key` is the text between the quotes. */
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

/* The same for a key without escapes, so that equal keys have equal bytes. */
static const uint8_t *after_plain_key(struct reader *reader, const uint8_t *at, struct token *key)
{
    const uint8_t *first = at;
    reader->escapes = 0;
    if (!(at = after_key(reader, at, key)))
        return NULL;
    return reader->escapes ? fail(reader, first) : at;
}

/* After an item, skip the comma or the closing bracket. */
static const uint8_t *after_item(struct reader *reader, const uint8_t *at, char close, int *closed)
{
    at = after_space(at);
    *closed = *at == (uint8_t)close;
    if (*closed)
        return at + 1;
    return *at == ',' ? after_space(at + 1) : fail(reader, at);
}

/* Skip an object, an array, a word or a negative number. */
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

/* Whether the token is this string in quotes, without escapes. */
static int is_string(struct token token, const char *text, size_t bytes)
{
    return token.start && token.bytes == (int64_t)bytes + 2 && token.start[0] == '"' &&
           memcmp(token.start + 1, text, bytes) == 0;
}

#endif
