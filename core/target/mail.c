/* Mail between the target's threads: intrusive lists behind a lock and an eventfd. Nothing is
 * allocated, so nothing can fail. Not a general queue: one reader, messages that their sender owns
 * no longer. */
#include "core/target/mail.h"

#include <errno.h>
#include <sys/eventfd.h>
#include <unistd.h>

int sl_target_mailbox_init(struct mailbox *box, struct sl_err *err)
{
    box->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (box->fd < 0)
        return sl_err_sys(err, SL_ERR_LIMIT, errno, "could not make an eventfd");
    pthread_mutex_init(&box->lock, NULL);
    sl_target_mail_chain_init(&box->chain);
    return 0;
}

void sl_target_mailbox_fini(struct mailbox *box)
{
    if (box->fd < 0)
        return;
    close(box->fd);
    box->fd = -1;
    pthread_mutex_destroy(&box->lock);
}

void sl_target_mail_chain_init(struct mail_chain *chain)
{
    chain->first = NULL;
    chain->end = &chain->first;
}

void sl_target_mail_chain_add(struct mail_chain *chain, struct mail *mail)
{
    mail->next = NULL;
    *chain->end = mail;
    chain->end = &mail->next;
}

void sl_target_mailbox_post(struct mailbox *box, struct mail_chain *chain)
{
    if (!chain->first)
        return;
    pthread_mutex_lock(&box->lock);
    bool wake = !box->chain.first;
    *box->chain.end = chain->first;
    box->chain.end = chain->end;
    pthread_mutex_unlock(&box->lock);
    sl_target_mail_chain_init(chain);
    if (wake)
        eventfd_write(box->fd, 1);
}

void sl_target_mailbox_post_one(struct mailbox *box, struct mail *mail)
{
    struct mail_chain chain;
    sl_target_mail_chain_init(&chain);
    sl_target_mail_chain_add(&chain, mail);
    sl_target_mailbox_post(box, &chain);
}

struct mail *sl_target_mailbox_take(struct mailbox *box)
{
    eventfd_t count;
    /* before the list is taken: mail that comes after it wakes again */
    eventfd_read(box->fd, &count);
    pthread_mutex_lock(&box->lock);
    struct mail *first = box->chain.first;
    sl_target_mail_chain_init(&box->chain);
    pthread_mutex_unlock(&box->lock);
    return first;
}
