plugins {
    id("com.android.application")
    id("org.jetbrains.kotlin.android")
}

android {
    namespace = "com.example.answers"
    compileSdk = 35
    defaultConfig {
        applicationId = "com.example.answers"
        minSdk = 24 // Android 7, the oldest of MediaPipe Tasks.
        targetSdk = 35
        versionCode = 1
        versionName = "1.0"
    }
    // Files are mapped into memory as they lie in the app.
    androidResources { noCompress += "tflite" }
}

kotlin { jvmToolchain(17) }

dependencies {
    implementation("com.google.mediapipe:tasks-text:1.0.1") // TextLabels.kt
    implementation("com.google.ai.edge.litert:litert:1.0.1") // TopIds.kt
}
