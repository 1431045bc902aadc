//! `pumice status --watch`: a live view of drives that are being served. Without a terminal that it can be
//! drawn on, plain reports follow each other.

mod columns;
mod history;
mod plain;
mod view;

use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use ask::{DriveSearch, FoundDrives, find_drives};
use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event, KeyCode, KeyEventKind, KeyModifiers};
use status::shown;

use history::History;

/// Range of the update interval, in seconds.
const INTERVAL_SECONDS: std::ops::RangeInclusive<f64> = 0.1..=3600.0;
/// Longest wait for a key between checks for new status reports.
const KEY_POLL: Duration = Duration::from_millis(50);

/// Update interval.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Interval(Duration);

impl std::str::FromStr for Interval {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Interval> {
        match text.parse::<f64>() {
            Ok(seconds) if INTERVAL_SECONDS.contains(&seconds) => {
                Ok(Interval(Duration::from_secs_f64(seconds)))
            }
            _ => bail!("expected seconds from 0.1 to 3600"),
        }
    }
}

/// Shows the live view until the user quits.
pub(super) fn run(path: Option<&Path>, interval: Interval) -> Result<()> {
    let (first, all_answered) = match path {
        Some(path) => (crate::served::drive(path)?.into_iter().collect(), true),
        None => crate::served::drives(),
    };
    if let Some(path) = path
        && first.is_empty()
    {
        bail!("{}: no server has it: --watch is for drives that are being served", shown(path));
    }
    if !can_draw() {
        return plain::run((first, all_answered), path, interval.0);
    }
    let mut history = History::default();
    history.update(first);
    let looks = look_on(path.map(Path::to_path_buf), interval);
    let mut terminal = ratatui::try_init()?;
    let watched = watch(&mut terminal, &mut history, (&looks, path.is_some()));
    let restored = ratatui::try_restore();
    watched.and(restored.map_err(Into::into))
}

/// Returns whether there is a terminal, and it can move its cursor.
fn can_draw() -> bool {
    let is_dumb = std::env::var_os("TERM").is_none_or(|name| name.is_empty() || name == "dumb");
    std::io::stdout().is_terminal() && std::io::stdin().is_terminal() && !is_dumb
}

/// Requests status in a separate thread, so that a server that does not respond does not block the keyboard.
fn look_on(path: Option<PathBuf>, interval: Interval) -> Receiver<FoundDrives> {
    let (sender, looks): (SyncSender<_>, _) = sync_channel(1);
    std::thread::spawn(move || {
        let search = path.as_deref().map(DriveSearch::new);
        // The server that has the drive when the view begins is shown to its end.
        let _ = search.as_ref().map(DriveSearch::find_exactly);
        loop {
            let since = Instant::now();
            let found = search.as_ref().map_or_else(|| find_drives(None), DriveSearch::search_again);
            // The view has ended.
            if sender.send(found).is_err() {
                return;
            }
            std::thread::sleep(interval.0.saturating_sub(since.elapsed()));
        }
    });
    looks
}

fn watch(
    terminal: &mut DefaultTerminal,
    history: &mut History,
    (looks, of_one_drive): (&Receiver<FoundDrives>, bool),
) -> Result<()> {
    let mut chosen = 0;
    loop {
        chosen = chosen.min(history.drives.len().saturating_sub(1));
        terminal.draw(|frame| view::draw(frame, history, chosen))?;
        // Waits for a key or a status, whichever comes first.
        loop {
            if event::poll(KEY_POLL)? {
                match answer(&event::read()?) {
                    Some(Key::Quit) => return Ok(()),
                    Some(Key::Up) => chosen = chosen.saturating_sub(1),
                    Some(Key::Down) => chosen += 1,
                    None => {}
                }
                break;
            }
            match looks.recv_timeout(Duration::ZERO) {
                Ok(found) => {
                    history.warnings = crate::served::warnings(&found, of_one_drive);
                    history.update(found.drives);
                    break;
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => bail!("the thread that asks the servers has ended"),
            }
        }
    }
}

/// Meaning of a key.
#[derive(Debug, PartialEq, Eq)]
enum Key {
    Quit,
    Up,
    Down,
}

/// Returns the meaning of an event; `None` for events without meaning. The view is redrawn in any case, such
/// as after a resize.
fn answer(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else { return None };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    match key.code {
        KeyCode::Char('q') | KeyCode::Esc => Some(Key::Quit),
        KeyCode::Char('c') if key.modifiers.contains(KeyModifiers::CONTROL) => Some(Key::Quit),
        KeyCode::Up | KeyCode::Char('k') => Some(Key::Up),
        KeyCode::Down | KeyCode::Char('j') => Some(Key::Down),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::crossterm::event::KeyEvent;

    #[test]
    fn keys() {
        let press = |code| answer(&Event::Key(KeyEvent::new(code, KeyModifiers::NONE)));
        assert_eq!(press(KeyCode::Char('q')), Some(Key::Quit));
        assert_eq!(press(KeyCode::Char('c')), None);
        assert_eq!(press(KeyCode::Down), Some(Key::Down));
        let interrupt = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
        assert_eq!(answer(&Event::Key(interrupt)), Some(Key::Quit));
        assert_eq!(answer(&Event::Resize(1, 1)), None);
    }

    #[test]
    fn intervals() {
        assert_eq!("0.5".parse().ok(), Some(Interval(Duration::from_millis(500))));
        for wrong in ["0", "-1", "NaN", "inf", "3601", "1s", ""] {
            assert!(wrong.parse::<Interval>().is_err(), "{wrong}");
        }
    }
}
