/* SPDX-License-Identifier: Apache-2.0 */
/* sluicectl top: the host, once a second. In a terminal it redraws its place by ANSI sequences that
 * every terminal has; elsewhere each look is a block of text. */
#include "core/err.h"
#include "tools/ctl/agent.h"
#include "tools/ctl/show.h"
#include "tools/ctl/table.h"

#include <errno.h>
#include <json-c/json.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/signalfd.h>
#include <termios.h>
#include <unistd.h>

#define PERIOD_MS 1000
#define RANKS_EACH 5 /* periods: what ranks tell of themselves is long */

/* One look. */
struct look {
    struct json_object *status, *ports, *ranks; /* NULL: the agent does not answer */
};

struct screen {
    bool is_terminal, has_keys;
    struct termios before;
    int signals;
};

static void look_free(struct look *look)
{
    json_object_put(look->status);
    json_object_put(look->ports);
    json_object_put(look->ranks);
    *look = (struct look){NULL, NULL, NULL};
}

/* before: NULL, or a look whose ranks are still good. */
static int look_take(const struct sc_context *context, const struct look *before, struct look *out)
{
    struct look look = {NULL, NULL, NULL};
    int err = sc_ask(context->socket, "GET", "/v1/status", 0, &look.status);

    err = err ?: sc_ask(context->socket, "GET", "/v1/ports", 0, &look.ports);
    if (before != NULL && before->ranks != NULL)
        look.ranks = json_object_get(before->ranks);
    else
        err = err ?: sc_ask(context->socket, "GET", "/v1/ranks", 0, &look.ranks);
    if (err != 0)
        look_free(&look);
    *out = look;
    return err;
}

/* ---- the terminal ---- */

static void screen_open(struct screen *screen)
{
    sigset_t signals;
    struct termios keys;

    sigemptyset(&signals);
    sigaddset(&signals, SIGINT);
    sigaddset(&signals, SIGTERM);
    sigaddset(&signals, SIGHUP);
    sigaddset(&signals, SIGWINCH);
    sigprocmask(SIG_BLOCK, &signals, NULL);
    screen->signals = signalfd(-1, &signals, SFD_CLOEXEC | SFD_NONBLOCK);
    screen->has_keys = screen->is_terminal && tcgetattr(STDIN_FILENO, &screen->before) == 0;
    if (screen->has_keys) {
        keys = screen->before;
        keys.c_lflag &= ~(tcflag_t)(ICANON | ECHO);
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    if (screen->is_terminal) /* a screen of its own, and no cursor */
        fputs("\033[?1049h\033[?25l", stdout);
}

static void screen_close(struct screen *screen)
{
    if (screen->is_terminal)
        fputs("\033[?25h\033[?1049l", stdout);
    if (screen->has_keys)
        (void)tcsetattr(STDIN_FILENO, TCSANOW, &screen->before);
    fflush(stdout);
    if (screen->signals >= 0)
        close(screen->signals);
}

static void size_of(const struct screen *screen, unsigned *rows, unsigned *columns)
{
    struct winsize size;

    *rows = *columns = 0;
    if (screen->is_terminal && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) {
        *rows = size.ws_row;
        *columns = size.ws_col;
    }
}

/* ---- a picture ---- */

static void draw_look(const struct sc_page *page, const struct look *look,
                      const struct look *before)
{
    struct json_object *conditions = sc_part(look->status, "conditions");

    if (look->status == NULL) {
        fprintf(page->out, "%s%s", sluice_last_error(), page->end);
        return;
    }
    sc_show_head(page, look->status);
    fputs(page->end, page->out);
    if (sc_length(conditions) > 0) {
        sc_show_conditions(page, conditions);
        fputs(page->end, page->out);
    }
    sc_show_ports(page, look->ports, before->ports);
    fputs(page->end, page->out);
    sc_show_ranks(page, look->ranks);
    fputs(page->end, page->out);
    sc_show_probes(page, sc_part(look->status, "probes"));
}

/* As many bytes of a line as fit, and no half of a character. */
static int fitting(const char *line, size_t len, unsigned columns)
{
    if (columns != 0 && len > columns)
        for (len = columns; len > 0 && ((unsigned char)line[len] & 0xc0) == 0x80; len--)
            ;
    return (int)len;
}

/* As many lines as there are rows: one more would scroll the first away. */
static void put_rows(const char *text, unsigned rows, unsigned columns)
{
    fputs("\033[H", stdout);
    for (unsigned row = 0; *text != '\0'; row++) {
        size_t len = strcspn(text, "\n");

        if (rows != 0 && row + 1 >= rows) {
            fputs("... q ends it\033[K", stdout);
            break;
        }
        printf("%.*s\033[K\n", fitting(text, len, columns), text);
        text += len + (text[len] == '\n');
    }
    fputs("\033[J", stdout);
}

static void draw(const struct sc_context *context, const struct screen *screen,
                 const struct look *look, const struct look *before)
{
    unsigned rows, columns;
    struct sc_page page = sc_page_plain();
    char *text = NULL;
    size_t len;

    if (context->json) {
        printf("{\"version\":1,\"status\":%s,\"ports\":%s,\"ranks\":%s}\n",
               json_object_to_json_string_ext(look->status, JSON_C_TO_STRING_PLAIN),
               json_object_to_json_string_ext(look->ports, JSON_C_TO_STRING_PLAIN),
               json_object_to_json_string_ext(look->ranks, JSON_C_TO_STRING_PLAIN));
        return;
    }
    size_of(screen, &rows, &columns);
    page.width = columns;
    page.out = open_memstream(&text, &len);
    if (page.out == NULL)
        return;
    draw_look(&page, look, before);
    if (fclose(page.out) == 0) {
        if (screen->is_terminal)
            put_rows(text, rows, columns);
        else
            printf("%s\n", text);
    }
    free(text);
}

/* ---- its loop ---- */

/* Until the period is over. False: it is to end. */
static bool wait_period(const struct screen *screen)
{
    struct pollfd fds[] = {{.fd = screen->signals, .events = POLLIN},
                           {.fd = screen->has_keys ? STDIN_FILENO : -1, .events = POLLIN}};
    struct signalfd_siginfo info;
    char key;

    if (poll(fds, 2, PERIOD_MS) <= 0)
        return true;
    if (fds[1].revents != 0 && (read(STDIN_FILENO, &key, 1) != 1 || key == 'q' || key == 'Q'))
        return false;
    return read(screen->signals, &info, sizeof(info)) != sizeof(info) || info.ssi_signo == SIGWINCH;
}

static int run(const struct sc_context *context, struct screen *screen, unsigned long long times)
{
    struct look look, before = {NULL, NULL, NULL};
    int err = look_take(context, NULL, &before);
    unsigned number = 0;

    /* Rates need two. */
    while (err == 0 || screen->is_terminal) {
        if (!wait_period(screen))
            break;
        err = look_take(context, ++number % RANKS_EACH != 0 ? &before : NULL, &look);
        if (err == 0 || !context->json)
            draw(context, screen, &look, &before);
        look_free(&before);
        before = look;
        if (fflush(stdout) != 0 || (times != 0 && --times == 0))
            break;
    }
    look_free(&before);
    return err;
}

int sc_top(const struct sc_context *context, int count, char **words)
{
    struct screen screen = {.is_terminal = !context->json && isatty(STDOUT_FILENO) == 1};
    unsigned long long times = screen.is_terminal ? 0 : 1;
    int err;

    for (int i = 0; i < count; i++) {
        const char *given = sc_option(count, words, &i, "count");

        if (given == NULL || !sc_number(given, 1000000, &times))
            return sc_refuse("top");
    }
    screen_open(&screen);
    err = run(context, &screen, times);
    screen_close(&screen);
    if (err == 0)
        return SC_GOOD;
    sc_complain();
    return err == -EREMOTEIO || err == -ENOTSUP ? SC_FAILED : SC_UNREACHABLE;
}
