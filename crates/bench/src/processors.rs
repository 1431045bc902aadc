//! Processors that servers and fio are confined to: what one of them does not use the other cannot have.

use host::{Root, processors};

/// Says which processors the servers of a target and fio may run on; `None` if neither is confined.
pub(crate) fn note(pids: &[u32], fio: Option<&str>) -> Option<String> {
    let all = processors::online(&Root::machine()).unwrap_or_default();
    let mut servers: Vec<String> = pids.iter().filter_map(|pid| allowed(&pid.to_string())).collect();
    servers.sort();
    servers.dedup();
    let own = allowed("self").unwrap_or_default();
    let fio = fio.unwrap_or(&own);
    // Servers that may run where this program may are not confined, though both may be in a part of the
    // machine.
    let is_free = |list: &str| list == all || list == own;
    if is_free(fio) && servers.iter().all(|list| is_free(list)) {
        return None;
    }
    let servers = match servers.is_empty() {
        true => String::new(),
        false => format!("its servers may run on processors {}, ", servers.join(" and ")),
    };
    Some(format!("{servers}fio on processors {fio}"))
}

fn allowed(process: &str) -> Option<String> {
    processors::allowed(&Root::machine(), process)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::process;

    #[test]
    fn what_is_confined_is_named() {
        let own = allowed("self").expect("a list");
        let (Some(taskset), true) = (process::find("taskset"), own.len() > 1) else {
            eprintln!("skipped: no taskset, or one processor");
            return;
        };
        let pid = std::process::id();
        assert_eq!(note(&[], None), None);
        assert_eq!(note(&[pid], None), None);
        assert_eq!(note(&[pid], Some(&own)), None);
        let first = own.split(['-', ',']).next().expect("a processor").to_string();
        let expected = format!("its servers may run on processors {own}, fio on processors {first}");
        assert_eq!(note(&[pid], Some(&first)), Some(expected));
        let mut confined = std::process::Command::new(taskset);
        let mut confined = confined.args(["-c", &first, "sleep", "60"]).spawn().expect("a process");
        // taskset confines itself before it becomes the program.
        let since = std::time::Instant::now();
        let found = loop {
            match note(&[confined.id()], None) {
                None if since.elapsed().as_secs() < 20 => std::thread::yield_now(),
                found => break found,
            }
        };
        confined.kill().and_then(|()| confined.wait()).expect("ended");
        let expected = format!("its servers may run on processors {first}, fio on processors {own}");
        assert_eq!(found, Some(expected));
    }
}
