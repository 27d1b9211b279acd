import SwiftUI

@main
struct AnswersApp: App {
  var body: some Scene {
    WindowGroup { AnswersView() }
  }
}

/// A field for a text, or for ids with spaces between them, and the answers to it.
struct AnswersView: View {
  @State private var asked = ""
  @State private var answers: [String] = []
  private let model = Model()

  var body: some View {
    VStack {
      TextField(Model.hint, text: $asked)
        .onSubmit { Task { answers = await model.lines(for: asked) } }
      List(answers, id: \.self) { Text($0) }
    }
    .padding()
  }
}

/// The file. It is opened when it is first asked, away from the screen's thread.
actor Model {
  #if canImport(MediaPipeTasksText)
  static let hint = "green apples"
  private lazy var file = Result {
    try TextLabels(path: Bundle.main.path(forResource: "fruit", ofType: "tflite") ?? "")
  }

  private func answers(to asked: String) throws -> [(String, Float)] {
    try file.get().of(asked)
  }
  #else
  static let hint = "3 14 15"
  private lazy var file = Result {
    try TopIds(
      path: Bundle.main.path(forResource: "classes", ofType: "tflite") ?? "", length: 20)
  }

  private func answers(to asked: String) throws -> [(Int32, Float)] {
    try file.get().of(asked.split(separator: " ").compactMap { Int32($0) })
  }
  #endif

  func lines(for asked: String) -> [String] {
    do {
      return try answers(to: asked).map { name, score in
        String(format: "%.3f", score) + "  \(name)"
      }
    } catch {
      return ["\(error)"]
    }
  }
}
