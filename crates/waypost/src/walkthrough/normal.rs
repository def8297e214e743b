//! Makes two runs of the tour look the same.

/// A list's remaining life differs; a task's is its whole life and longer than this.
const LONGEST_LIFE: u64 = 60_000;

/// Replaces what differs from run to run: the address, task ids, times and Waypost's version.
/// Each task keeps a name of its own, so that it can be followed through the text.
pub fn normalise(text: &str, url: &str) -> String {
    let mut tasks: Vec<String> = Vec::new();
    let text = text.replace(url, "<url>");
    let parts: Vec<String> = text
        .split('"')
        .map(|part| {
            if is_handle(part) {
                let known = tasks.iter().position(|task| task == part);
                let number = known.unwrap_or_else(|| {
                    tasks.push(part.to_owned());
                    tasks.len() - 1
                });
                format!("<task {}>", number + 1)
            } else if is_time(part) {
                "<time>".to_owned()
            } else if part == env!("CARGO_PKG_VERSION") {
                "<version>".to_owned()
            } else {
                part.to_owned()
            }
        })
        .collect();
    let text = parts.join("\"");
    let handles = tasks.iter().enumerate();
    // Headers show them without quotes.
    let text = handles.fold(text, |text, (number, task)| {
        text.replace(task, &format!("<task {}>", number + 1))
    });
    let lines = text.split('\n').map(without_life);
    lines.collect::<Vec<_>>().join("\n")
}

fn without_life(line: &str) -> String {
    let life = line.split_once("\"ttlMs\": ");
    let number = life.and_then(|(_, rest)| rest.trim_end_matches(',').parse::<u64>().ok());
    match (life, number) {
        (Some((front, _)), Some(..=LONGEST_LIFE)) => format!("{front}\"ttlMs\": <life>"),
        _ => line.to_owned(),
    }
}

fn is_handle(text: &str) -> bool {
    text.matches('~').count() >= 3 && !text.contains(char::is_whitespace)
}

fn is_time(text: &str) -> bool {
    let shape: String = text
        .chars()
        .map(|c| if c.is_ascii_digit() { '0' } else { c })
        .collect();
    shape.starts_with("0000-00-00T00:00:00") && shape.ends_with('Z')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rest_of_a_lists_life_is_not_shown_and_a_tasks_is() {
        let text = "  \"ttlMs\": 59981,\n  \"ttlMs\": 3600000";
        let expected = "  \"ttlMs\": <life>\n  \"ttlMs\": 3600000";
        assert_eq!(normalise(text, "http://h/mcp"), expected);
    }

    #[test]
    fn ids_and_times_become_names_and_the_rest_stays() {
        let text = r#"http://h/mcp "a~t~b~s" "2026-11-30T08:00:00.123Z" "c~t~b~s" "a~t~b~s" a~t~b~s "1~2""#;
        let expected = r#"<url> "<task 1>" "<time>" "<task 2>" "<task 1>" <task 1> "1~2""#;
        assert_eq!(normalise(text, "http://h/mcp"), expected);
    }
}
