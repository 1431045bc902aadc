//! `docs/reference/status-json.md` and `docs/schema/status.json` list exactly the keys of a report, with
//! their types and whether they may be null.

use std::collections::BTreeMap;

use serde_json::Value;
use status::StatusAnswer;

mod known;

use known::{known, sample};

const DOCUMENT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/reference/status-json.md");
const SCHEMA: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/schema/status.json");

/// Keys with the types that their values have.
fn keys_of(value: &Value) -> BTreeMap<String, String> {
    let mut keys = BTreeMap::new();
    let mut left = vec![(String::new(), value)];
    while let Some((path, value)) = left.pop() {
        let kind = match value {
            Value::Null => "null",
            Value::Bool(_) => "boolean",
            Value::Number(number) if number.is_u64() => "integer",
            Value::Number(_) => "number",
            Value::String(_) => "string",
            Value::Object(_) => "object",
            Value::Array(elements) => {
                left.extend(elements.iter().map(|element| (format!("{path}[]"), element)));
                continue;
            }
        };
        if let Value::Object(members) = value {
            let below = |key: &String| if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
            left.extend(members.iter().map(|(key, member)| (below(key), member)));
        }
        if !path.is_empty() {
            keys.insert(path, kind.to_string());
        }
    }
    keys
}

/// Keys and types of the document.
fn documented() -> BTreeMap<String, String> {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/reference/status-json.md");
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.split(" | ");
        let key = cells.next()?.strip_suffix('`')?;
        Some((key.to_string(), cells.next()?.to_string()))
    });
    rows.collect()
}

/// Keys and types of the schema.
fn in_schema() -> BTreeMap<String, String> {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(SCHEMA).expect("a schema")).expect("JSON");
    let mut keys = BTreeMap::new();
    let mut left = vec![(String::new(), &schema["$defs"]["drive"])];
    while let Some((path, node)) = left.pop() {
        if let Some(definition) = node["$ref"].as_str() {
            let name = definition.strip_prefix("#/$defs/").expect("a definition");
            left.push((path, &schema["$defs"][name]));
            continue;
        }
        let kind = match &node["type"] {
            Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect::<Vec<_>>().join(" or "),
            kind => kind.as_str().expect("a type").to_string(),
        };
        if kind == "array" {
            left.push((format!("{path}[]"), &node["items"]));
            continue;
        }
        for (key, below) in node["properties"].as_object().into_iter().flatten() {
            left.push((if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, below));
        }
        if !path.is_empty() {
            keys.insert(path, kind);
        }
    }
    keys
}

#[test]
fn the_schema_has_the_documented_keys() {
    let mut in_schema = in_schema();
    in_schema.retain(|key, _| !described_elsewhere(key));
    let mut documented = documented();
    documented.retain(|key, _| !described_elsewhere(key));
    assert_eq!(in_schema, documented);
}

/// Meanings of the document as plain text, by key.
fn meanings() -> BTreeMap<String, String> {
    let document = std::fs::read_to_string(DOCUMENT).expect("docs/reference/status-json.md");
    let rows = document.lines().filter_map(|line| {
        let mut cells = line.strip_prefix("| `")?.strip_suffix('|')?.splitn(3, " | ");
        let key = cells.next()?.strip_suffix('`')?;
        Some((key.to_string(), plain(cells.nth(1)?.trim())))
    });
    rows.collect()
}

/// Returns Markdown of the document as a description of the schema: without marks, with the texts of links,
/// and with a capital at the beginning, but for names. Links that name pages are left out.
fn plain(markdown: &str) -> String {
    let (mut text, mut rest) = (String::new(), markdown);
    while let Some((before, link)) = rest.split_once('[') {
        let Some((name, after)) = link.split_once("](") else { break };
        text += before;
        text += if name.contains(".md") || name.contains('/') { "" } else { name };
        rest = after.split_once(')').map_or("", |(_, after)| after);
    }
    let text = (text + rest).replace(" ()", "").replace('`', "").trim().to_string();
    match text.chars().next().filter(|_| !markdown.starts_with('`')) {
        Some(first) => first.to_uppercase().chain(text.chars().skip(1)).collect(),
        None => text,
    }
}

/// Descriptions of the schema, by key.
fn descriptions() -> BTreeMap<String, String> {
    let schema: Value =
        serde_json::from_str(&std::fs::read_to_string(SCHEMA).expect("a schema")).expect("JSON");
    let mut found = BTreeMap::new();
    let mut left = vec![(String::new(), &schema["$defs"]["drive"])];
    while let Some((mut path, node)) = left.pop() {
        let text = node["description"].as_str().map(str::to_string);
        let definition = node["$ref"].as_str().and_then(|it| it.strip_prefix("#/$defs/"));
        let mut node = definition.map_or(node, |name| &schema["$defs"][name]);
        if node["type"] == "array" {
            path += "[]";
            node = &node["items"];
            let definition = node["$ref"].as_str().and_then(|it| it.strip_prefix("#/$defs/"));
            node = definition.map_or(node, |name| &schema["$defs"][name]);
        }
        for (key, below) in node["properties"].as_object().into_iter().flatten() {
            left.push((if path.is_empty() { key.clone() } else { format!("{path}.{key}") }, below));
        }
        found.insert(path, text.unwrap_or_default());
    }
    found
}

/// The document is the one place where the meaning of a key is written.
#[test]
fn the_schema_describes_keys_as_the_document_does() {
    let descriptions = descriptions();
    let own = meanings().into_iter().filter(|(key, _)| !described_elsewhere(key));
    let wrong = own.filter(|(key, meaning)| descriptions.get(key) != Some(meaning));
    let wrong: Vec<String> =
        wrong.map(|(key, meaning)| format!("{key}: {meaning:?}, not {:?}", descriptions.get(&key))).collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Described once for all: the other kinds of requests, and the same latencies over another time.
fn described_elsewhere(key: &str) -> bool {
    key.starts_with("server.latency_recent.")
        || ["write", "flush", "trim"].iter().any(|kind| key.starts_with(&format!("server.latency.{kind}")))
}

#[test]
fn every_key_is_documented_with_its_type() {
    let documented = documented();
    let value = serde_json::to_value(sample()).expect("JSON");
    let mut seen = keys_of(&value);
    seen.retain(|key, _| !described_elsewhere(key));
    let mut wrong = Vec::new();
    for (key, kind) in &seen {
        match documented.get(key).map(String::as_str) {
            None => wrong.push(format!("{key} ({kind}) is not documented")),
            Some(documented) if kind == "null" && documented.ends_with(" or null") => {}
            // Null on a drive nobody serves, and before the first scrub, training, or run of settling.
            Some("object or null")
                if [
                    "backing.file",
                    "server",
                    "server.scrub",
                    "server.training",
                    "server.settling.run",
                    "server.survey",
                    "server.offload",
                    "server.read_cache",
                ]
                .contains(&&**key) => {}
            Some(documented) if documented != kind => {
                wrong.push(format!("{key} is {kind}, not {documented}"))
            }
            Some(_) => {}
        }
    }
    wrong.extend(
        documented.keys().filter(|key| !seen.contains_key(*key)).map(|key| format!("{key} does not exist")),
    );
    assert_eq!(wrong, Vec::<String>::new());
}

#[test]
fn what_may_be_null_has_the_type_that_is_documented() {
    let report = known();
    let mut seen = keys_of(&serde_json::to_value(&report).expect("JSON"));
    seen.retain(|key, _| !described_elsewhere(key));
    for (key, kind) in documented() {
        let wanted = kind.strip_suffix(" or null").unwrap_or(&kind);
        assert_eq!(seen.get(&key).map(String::as_str), Some(wanted), "{key}");
    }
}

#[test]
fn answers_of_older_and_newer_programs_are_understood() {
    let older: StatusAnswer =
        serde_json::from_str(r#"{"drives": [{"path": "/srv/d", "state": "online"}]}"#).expect("fewer keys");
    assert_eq!((older.drives[0].state.as_str(), older.drives[0].opens_count), ("online", 0));
    let newer =
        r#"{"drives": [{"path": "/srv/d", "state": "online", "server": {"pid": 3, "new": 1}, "newer": {}}]}"#;
    let newer: StatusAnswer = serde_json::from_str(newer).expect("more keys");
    assert_eq!(newer.drives[0].server.as_ref().map(|server| server.pid), Some(3));
}
