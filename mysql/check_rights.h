/* Which of the rights that docs/mysql.md grants an account has. */
#ifndef SL_MYSQL_CHECK_RIGHTS_H
#define SL_MYSQL_CHECK_RIGHTS_H

#include "mysql/db.h"

struct sl_my_rights {
    char account[300]; /* 'sluice'@'localhost' */
    char missing[400]; /* "RELOAD, PROCESS", or "" */
    unsigned has;      /* bits, in the order of the list of the server's kind */
};

/* One line of SHOW GRANTS: adds to `has` what it grants on *.*. Pure. */
void sl_my_rights_take(struct sl_my_rights *rights, bool mariadb, const char *grant);
/* Sets `missing` from `has`. Pure. */
void sl_my_rights_judge(struct sl_my_rights *rights, bool mariadb);
/* Asks the server. */
int sl_my_rights_ask(struct sl_my_db *db, bool mariadb, struct sl_my_rights *ret_rights,
                     struct sl_err *err);

#endif
