/* Rights by the lines of SHOW GRANTS, which an account may always see of itself, those of its
 * active roles included (MariaDB). */
#include "mysql/check_rights.h"

#include <stdio.h>
#include <string.h>
#include <strings.h>

struct right {
    const char *name, *before; /* what older versions call it */
};
/* docs/mysql.md says what each is for. */
static const struct right of_mariadb[] = {{"RELOAD", NULL},
                                          {"PROCESS", NULL},
                                          {"LOCK TABLES", NULL},
                                          {"BINLOG MONITOR", "REPLICATION CLIENT"},
                                          {"REPLICATION SLAVE", NULL},
                                          {NULL, NULL}};
static const struct right of_mysql[] = {{"BACKUP_ADMIN", NULL},
                                        {"RELOAD", NULL},
                                        {"PROCESS", NULL},
                                        {"LOCK TABLES", NULL},
                                        {"REPLICATION CLIENT", NULL},
                                        {"REPLICATION SLAVE", NULL},
                                        {NULL, NULL}};

static const struct right *list_of(bool mariadb)
{
    return mariadb ? of_mariadb : of_mysql;
}

static bool is(const char *word, size_t length, const char *name)
{
    return name && strlen(name) == length && strncasecmp(word, name, length) == 0;
}

static void take_word(struct sl_my_rights *rights, const struct right *list, const char *word,
                      size_t length)
{
    bool all = is(word, length, "ALL PRIVILEGES") || is(word, length, "ALL");
    for (unsigned i = 0; list[i].name; i++)
        if (all || is(word, length, list[i].name) || is(word, length, list[i].before))
            rights->has |= 1u << i;
}

void sl_my_rights_take(struct sl_my_rights *rights, bool mariadb, const char *grant)
{
    const char *end = strstr(grant, " ON *.* TO ");
    if (strncmp(grant, "GRANT ", 6) != 0 || !end)
        return;
    for (const char *at = grant + 6; at < end;) {
        size_t length = strcspn(at, ",");
        if (length > (size_t)(end - at))
            length = (size_t)(end - at);
        take_word(rights, list_of(mariadb), at, length);
        at += length;
        at += strspn(at, ", ");
    }
}

void sl_my_rights_judge(struct sl_my_rights *rights, bool mariadb)
{
    const struct right *list = list_of(mariadb);
    rights->missing[0] = '\0';
    for (unsigned i = 0; list[i].name; i++) {
        size_t used = strlen(rights->missing);
        if (!(rights->has & 1u << i))
            snprintf(rights->missing + used, sizeof rights->missing - used, "%s%s",
                     used ? ", " : "", list[i].name);
    }
}

struct asking {
    struct sl_my_rights *rights;
    bool mariadb;
};

static int take_grant(void *arg, const struct sl_my_row *row)
{
    const struct asking *a = arg;
    if (row->values[0])
        sl_my_rights_take(a->rights, a->mariadb, row->values[0]);
    return 0;
}

static int take_account(void *arg, const struct sl_my_row *row)
{
    struct sl_my_rights *rights = arg;
    const char *account = row->values[0] ? row->values[0] : "", *at = strrchr(account, '@');
    if (at)
        snprintf(rights->account, sizeof rights->account, "'%.*s'@'%.100s'",
                 at - account < 150 ? (int)(at - account) : 150, account, at + 1);
    return 0;
}

int sl_my_rights_ask(struct sl_my_db *db, bool mariadb, struct sl_my_rights *ret_rights,
                     struct sl_err *err)
{
    *ret_rights = (struct sl_my_rights){0};
    struct asking a = {ret_rights, mariadb};
    int rc = sl_my_db_query(db, "SELECT CURRENT_USER()", take_account, ret_rights, err);
    if (!rc)
        rc = sl_my_db_query(db, "SHOW GRANTS", take_grant, &a, err);
    if (!rc)
        sl_my_rights_judge(ret_rights, mariadb);
    return rc;
}
