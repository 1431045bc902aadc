//! Paths into JSON.

use serde_json::Value;

/// Returns the value at a path of keys separated by dots. `list[key=value,other=value]` selects the item of a
/// list whose keys have these values; `list[3]` selects the fourth item.
pub(super) fn at_path<'a>(json: &'a Value, path: &str) -> Option<&'a Value> {
    let mut inside = false;
    let steps = path.split(|c| {
        inside = (inside || c == '[') && c != ']';
        c == '.' && !inside
    });
    steps.into_iter().try_fold(json, |value, step| {
        match step.strip_suffix(']').and_then(|step| step.split_once('[')) {
            Some((key, which)) => pick(value.get(key)?.as_array()?, which),
            None => value.get(step),
        }
    })
}

/// Returns the item of a list at an index, or the first item whose keys have the given values.
fn pick<'a>(items: &'a [Value], which: &str) -> Option<&'a Value> {
    if let Ok(index) = which.parse::<usize>() {
        return items.get(index);
    }
    let wanted: Vec<(&str, &str)> =
        which.split(',').map(|pair| pair.split_once('=')).collect::<Option<_>>()?;
    let text = |value: &Value| value.as_str().map_or_else(|| value.to_string(), str::to_string);
    let has =
        |item: &Value, key: &str, wanted: &str| item.get(key).is_some_and(|value| text(value) == wanted);
    items.iter().find(|item| wanted.iter().all(|(key, value)| has(item, key, value)))
}
