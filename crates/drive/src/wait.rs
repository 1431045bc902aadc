//! Waiting for a change.

use event_listener::Event;

/// Waits until `look` returns a value. It is called again at every notification of `event`.
///
/// No change is missed if every change is followed by a notification: a change after the second call finds
/// the listener in place.
pub(crate) async fn wait_until<T>(event: &Event, mut look: impl FnMut() -> Option<T>) -> T {
    loop {
        if let Some(answer) = look() {
            return answer;
        }
        let listener = event.listen();
        if let Some(answer) = look() {
            return answer;
        }
        listener.await;
    }
}
