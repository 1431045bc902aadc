//! How a request waits for something to change.

use event_listener::Event;

/// Waits until `look` answers, looking again whenever `event` is notified.
///
/// No change is missed if every change is followed by a notification: what changes after the second look finds the
/// listener there.
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
