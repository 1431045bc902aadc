//! Names of hosts to listen at. They are resolved on threads of their own, because a name server may take
//! long, and the main loop handles signals, events and monitoring.

use std::collections::BTreeMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::oneshot;

/// Longest wait for the names of a configuration.
const PATIENCE: Duration = Duration::from_secs(10);

/// Most threads at a time, those included that are not waited for any more: a name server that does not
/// answer holds them for as long as the resolver is patient.
const THREADS_MAX: usize = 64;

static THREADS: AtomicUsize = AtomicUsize::new(0);

/// A thread that resolves a name.
struct Resolving;

impl Resolving {
    fn begin() -> io::Result<Resolving> {
        if THREADS.fetch_add(1, Ordering::Relaxed) >= THREADS_MAX {
            THREADS.fetch_sub(1, Ordering::Relaxed);
            return Err(io::Error::other("too many names are being resolved; is the name server down?"));
        }
        Ok(Resolving)
    }
}

impl Drop for Resolving {
    fn drop(&mut self) {
        THREADS.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Name or IP address of a host, and port.
type Host = (String, u16);

/// Resolved names.
#[derive(Default)]
pub(super) struct Names(BTreeMap<Host, io::Result<Vec<SocketAddr>>>);

impl Names {
    /// Resolves names, all at the same time.
    pub(super) async fn resolve(hosts: impl IntoIterator<Item = Host>) -> Names {
        Names::resolve_by(hosts, PATIENCE, |(name, port)| {
            (name.as_str(), *port).to_socket_addrs().map(Iterator::collect)
        })
        .await
    }

    async fn resolve_by<R>(hosts: impl IntoIterator<Item = Host>, patience: Duration, resolver: R) -> Names
    where
        R: Fn(&Host) -> io::Result<Vec<SocketAddr>> + Clone + Send + 'static,
    {
        let asked: BTreeMap<Host, _> = hosts
            .into_iter()
            .map(|host| {
                let (answer, answered) = oneshot::channel();
                let (resolver, wanted) = (resolver.clone(), host.clone());
                let thread = Resolving::begin().and_then(|resolving| {
                    std::thread::Builder::new().name("pumice-resolve".into()).spawn(move || {
                        let _resolving = resolving;
                        // Nobody may wait for it any more.
                        let _ = answer.send(resolver(&wanted));
                    })
                });
                (host, thread.map(|_| answered))
            })
            .collect();
        let until = tokio::time::Instant::now() + patience;
        let mut names = Names::default();
        for (host, asked) in asked {
            let addresses = match asked {
                Ok(answered) => match tokio::time::timeout_at(until, answered).await {
                    Ok(Ok(addresses)) => addresses,
                    // A panic ends the process.
                    Ok(Err(_)) => Err(io::Error::other("not resolved")),
                    Err(_) => {
                        let why = format!("the name was not resolved within {} s", patience.as_secs_f64());
                        Err(io::Error::new(io::ErrorKind::TimedOut, why))
                    }
                },
                Err(error) => Err(error),
            };
            names.0.insert(host, addresses);
        }
        names
    }

    /// Returns the addresses of a name that was to be resolved.
    ///
    /// # Errors
    /// If it could not be resolved.
    pub(super) fn get(&self, name: &str, port: u16) -> io::Result<Vec<SocketAddr>> {
        match self.0.get(&(name.to_string(), port)) {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err(error)) => Err(io::Error::new(error.kind(), error.to_string())),
            None => Err(io::Error::other("the name was not looked up")),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex, mpsc};

    use super::*;

    #[tokio::test]
    async fn a_name_server_that_does_not_answer_is_not_waited_for() {
        let (end, ended) = mpsc::channel::<()>();
        let ended = Arc::new(Mutex::new(ended));
        let resolver = move |(name, port): &Host| match name.as_str() {
            "slow.example" => {
                let _ = ended.lock().expect("a lock").recv();
                Err(io::Error::other("too late"))
            }
            "unknown.example" => Err(io::Error::new(io::ErrorKind::NotFound, "no such name")),
            _ => Ok(vec![SocketAddr::from(([192, 0, 2, 1], *port))]),
        };
        let hosts = ["slow.example", "unknown.example", "known.example"].map(|name| (name.to_string(), 7));
        // The only thread of the runtime is free meanwhile: this ends the wait.
        let names = Names::resolve_by(hosts, Duration::from_millis(200), resolver).await;
        let kind = |name| names.get(name, 7).map_err(|error| error.kind());
        assert_eq!(kind("slow.example"), Err(io::ErrorKind::TimedOut));
        assert_eq!(kind("unknown.example"), Err(io::ErrorKind::NotFound));
        assert_eq!(kind("known.example"), Ok(vec![SocketAddr::from(([192, 0, 2, 1], 7))]));
        assert_eq!(names.get("known.example", 8).map_err(|error| error.kind()), Err(io::ErrorKind::Other));
        drop(end);
    }

    #[tokio::test]
    async fn addresses_are_their_own_names() {
        let names = Names::resolve([("127.0.0.1".to_string(), 1), ("::1".to_string(), 2)]).await;
        assert_eq!(names.get("127.0.0.1", 1).expect("resolved"), [SocketAddr::from(([127, 0, 0, 1], 1))]);
        assert_eq!(names.get("::1", 2).expect("resolved").len(), 1);
    }
}
