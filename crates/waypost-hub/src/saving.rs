//! Keeps what is known of upstreams over restarts.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::sleep;

use crate::backoff::Backoff;
use crate::lifecycle::{FAREWELL, Tasks};
use crate::member::Member;
use crate::registry::Learned;
use crate::store::Store;

/// What could not be stored is tried again after so long; the wait doubles.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MOST: Duration = Duration::from_secs(60);

/// Stores what is known of a member, also when that works only later, and when whoever wants it is
/// told to stop: what others have seen of it must not be gone after a restart.
pub(crate) async fn save(store: &Arc<dyn Store>, member: &Arc<Member>, background: &Tasks) {
    let (done, saved) = oneshot::channel::<()>();
    let (store, member, tasks) = (Arc::clone(store), Arc::clone(member), background.clone());
    background.spawn(|stop| async move {
        let _done = done;
        tokio::select! {
            () = save_now(&store, &member, &tasks) => {}
            () = async {
                stop.cancelled().await;
                sleep(FAREWELL).await;
            } => {}
        }
    });
    drop(saved.await);
}

async fn save_now(store: &Arc<dyn Store>, member: &Arc<Member>, background: &Tasks) {
    if try_save(&**store, member).await || member.set_unsaved(true) {
        return;
    }
    let (store, member) = (Arc::clone(store), Arc::clone(member));
    background.spawn(|stop| async move {
        let again = async {
            let mut backoff = Backoff::new(AGAIN_FIRST, AGAIN_MOST);
            loop {
                sleep(backoff.failed()).await;
                // Whoever fails from here on, with what is newer, finds nobody at it.
                member.set_unsaved(false);
                if try_save(&*store, &member).await || member.set_unsaved(true) {
                    return;
                }
            }
        };
        stop.run_until_cancelled(again).await;
    });
}

async fn try_save(store: &dyn Store, member: &Member) -> bool {
    let Some(learned) = member.learned() else {
        return true;
    };
    let saved = store.save(Learned::clone(&learned)).await;
    if let Err(error) = &saved {
        tracing::error!(upstream = &*member.name, %error, source = %error.source,
            "what was learned is not remembered yet");
    }
    saved.is_ok()
}
